"""Readers whose programs die, fall silent and come late, while ranges are split and merged and the broker is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault import reader_trial
from tests.fault.reading import trial
from tests.support.daemon import Daemon

CYCLES = 60
STRIKES = 15


@pytest.fixture
def broker(database_url: str, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "daemon", database_url)
    yield daemon
    daemon.kill()


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_skipped_and_repeats_are_the_same_batches(broker: Daemon, seed: int) -> None:
    reader_trial.set_up(broker.url)
    broker.start()
    await reader_trial.Trial(broker, seed).run(CYCLES)


async def test_real_programs_that_are_killed_and_stopped_skip_nothing(broker: Daemon, tmp_path: Path) -> None:
    trial.set_up(broker.url)
    broker.start()
    ruling = await trial.ReaderTrial(broker, tmp_path, seed=3).run(STRIKES)
    assert ruling.violations == []
    assert ruling.batches > 0
