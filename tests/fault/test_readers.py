"""Readers whose programs die, fall silent and come late, while ranges are split and merged and the broker is killed."""

from pathlib import Path

import pytest

from tests.fault.reader_trial import Trial, set_up
from tests.support.daemon import Daemon

CYCLES = 60


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_skipped_and_repeats_are_the_same_batches(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    set_up(database_url)
    broker = Daemon(tmp_path / "daemon", database_url)
    broker.start()
    try:
        trial = Trial(broker, seed)
        await trial.run(CYCLES)
    finally:
        broker.kill()
