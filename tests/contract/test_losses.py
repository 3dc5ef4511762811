"""Losses that only a file has; on every database."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.journal import NOW
from xbus.broker.housekeeping.losses import LossFiles
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations import losses
from xbus.errors import JournalUnavailable

RIGHT = {"at": NOW.isoformat(), "writer": "broker", "commits": 1, "known": 2, "found": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": "2026-11-27T10:00:00"},
        {"commits": None},
        {"commits": 2**63},
        {"commits": {}},
        {"writer": ["back"], "commits": None},
    ],
    ids=str,
)
async def test_a_loss_that_the_journal_refuses_stops_nothing(
    wrong: dict[str, Any], journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / losses.FILE_NAME
    file.write_text("".join(json.dumps(line) + "\n" for line in (RIGHT | {"writer": "back"} | wrong, RIGHT)))
    files = LossFiles(journal, [file])
    for _ in range(2):
        await files.take_over()
    assert [loss.at for loss in await journal.read(losses.read_open)] == [NOW]
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(file) in told.getMessage()
    file.write_text(json.dumps(RIGHT))
    await files.take_over()
    assert not file.exists()
    assert len(await journal.read(losses.read_open)) == 1


async def test_a_journal_that_is_away_takes_no_loss_for_refused(
    file_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / losses.FILE_NAME
    file.write_text(json.dumps(RIGHT))
    async with Journal.open(file_url, "broker") as journal:
        pass
    with pytest.raises(JournalUnavailable):
        await LossFiles(journal, [file]).take_over()
    assert file.exists()
