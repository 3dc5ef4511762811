"""The messages between runner and child, one line each."""

import base64
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TypedDict

from xbus.bots.batch import BotBatch
from xbus.reader.batch import read_event
from xbus.rpc.codec import pack, unpack
from xbus.rpc.messages import BotRun
from xbus.rpc.shapes import AnswerReader


class _JobMap(TypedDict):
    """A job as it is written."""

    run: BotRun
    front: str


_JOB = AnswerReader("job", _JobMap)


@dataclass(frozen=True)
class RunJob:
    """An attempt of a run.

    Args:
        run: as the broker gave it.
        front: where its output goes to.
    """

    run: BotRun
    front: str

    def line(self) -> bytes:
        """Write it for the child. Items are bytes, which JSON has not."""
        return base64.b64encode(pack({"run": self.run, "front": self.front})) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "RunJob":
        """Read what ``line`` wrote."""
        found = _JOB.read(unpack(base64.b64decode(line)))
        return cls(found["run"], found["front"])

    @property
    def batch(self) -> BotBatch:
        """The attempt for the author's function."""
        run = self.run
        events = [read_event(event) for event in run["events"]]
        return BotBatch(
            run["bot"],
            None if run["slot"] is None else datetime.fromisoformat(run["slot"]),
            datetime.fromisoformat(run["due_at"]),
            run["attempt"],
            run["settings"],
            [item for event in events for item in event],
            events,
        )


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt.

    Args:
        code: empty where all went well.
        error: in words.
    """

    code: str = ""
    error: str = ""

    def line(self) -> bytes:
        """Write it for the runner."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "Outcome":
        """Read what ``line`` wrote."""
        return cls(**json.loads(line))
