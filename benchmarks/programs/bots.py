"""Functions of bots, which note when they are called."""

import json
import time
from pathlib import Path

from xbus.bots import BotBatch, BotOutput

NOTES = "notes"
"""The setting with the path of the file to which they add a line of JSON."""


def at_batch(batch: BotBatch, out: BotOutput) -> None:
    """Note the time of the monotonic clock, and the items."""
    _note(batch, {"at": time.monotonic(), "items": len(batch.items)})


def at_slot(batch: BotBatch, out: BotOutput) -> None:
    """Note how many seconds after its slot it is called."""
    assert batch.slot is not None, "it has a cron"
    _note(batch, {"late": time.time() - batch.slot.timestamp()})


def _note(batch: BotBatch, said: dict[str, float]) -> None:
    with Path(str(batch.settings[NOTES])).open("a") as notes:
        notes.write(json.dumps(said) + "\n")
