"""The messages between runner and child, one line each."""

import base64
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TypedDict

from xbus.bots.output import BotBatch
from xbus.reader.batch import read_event
from xbus.rpc.codec import pack, unpack
from xbus.rpc.messages import BotRun
from xbus.rpc.shapes import AnswerReader

ANY = "*"
"""Allows each module, or each program."""


class _JobMap(TypedDict):
    """A job as it is written."""

    run: BotRun
    front: str
    modules: list[str]
    programs: list[str]


_JOB = AnswerReader("job", _JobMap)


@dataclass(frozen=True)
class Allowed:
    """The work that a runner does; whoever answers it over the network may ask for more.

    Args:
        modules: of functions, each with the modules below it; ``ANY`` for all.
        programs: the first words of commands; ``ANY`` for all.
    """

    modules: Collection[str] = ()
    programs: Collection[str] = ()

    def has_module(self, name: str) -> bool:
        """Check whether functions of a module may be called."""
        return ANY in self.modules or any(f"{name}.".startswith(f"{module}.") for module in self.modules)

    def has_program(self, name: str) -> bool:
        """Check whether a program may be started."""
        return ANY in self.programs or name in self.programs


@dataclass(frozen=True)
class RunJob:
    """An attempt of a run.

    Args:
        run: as the broker gave it.
        front: where its output goes to.
        allowed: as the runner's person said.
    """

    run: BotRun
    front: str
    allowed: Allowed

    def line(self) -> bytes:
        """Write it for the child. Items are bytes, which JSON has not."""
        modules, programs = [*self.allowed.modules], [*self.allowed.programs]
        job = _JobMap(run=self.run, front=self.front, modules=modules, programs=programs)
        return base64.b64encode(pack(job)) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "RunJob":
        """Read what ``line`` wrote."""
        found = _JOB.read(unpack(base64.b64decode(line)))
        return cls(found["run"], found["front"], Allowed(found["modules"], found["programs"]))

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
