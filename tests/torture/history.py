"""What happened, as those wrote it down who saw it: emitters, consumers, and who struck them.

Each writes lines of JSON to a file of its own, durable before it goes on; what a kill has cut off is no line. Times are
those of the machine's monotonic clock, in seconds, which all processes share.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.torture.items import envelope_of


class Log:
    """A file that lines are added to; a process that was killed finds it again as it left it.

    Args:
        path: the file; what has no end of line at its end is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.ftruncate(self._file, _whole_lines(path))

    def write(self, **said: Any) -> None:
        """Add a line with the time, and come back when it is durable."""
        line = json.dumps({"at": time.monotonic(), **said}, separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _whole_lines(path: Path) -> int:
    """The size of a file without a line that was cut off."""
    return path.read_bytes().rfind(b"\n") + 1


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """What is in a log, without a line that was cut off."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


# -- emitters ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sent:
    """An envelope as its emitter knows it.

    Args:
        ref: what the emitter calls it.
        events: type and number of items of each event, in order.
        key: its ordering key, empty for none.
        headed: whether its events were sent with headers.

    Attributes:
        sealing: whether the emitter ever asked the bus to seal it.
        sealed: whether the bus acknowledged that.
        sealed_at: when, in seconds.
        envelope_id: the bus's id of it, as far as the emitter was told.
        position: the position in its receipt; None where it got none.
    """

    ref: str
    events: tuple[tuple[str, int], ...]
    key: str = ""
    headed: bool = False
    sealing: bool = False
    sealed: bool = False
    sealed_at: float = field(default=0.0, compare=False)
    envelope_id: str | None = None
    position: int | None = None

    @property
    def items(self) -> int:
        """How many items it holds."""
        return sum(items for _, items in self.events)


def read_sent(said: Iterable[Mapping[str, Any]]) -> dict[str, Sent]:
    """The envelopes in the lines of an emitter, by ref."""
    sent: dict[str, Sent] = {}
    for line in said:
        match line["what"]:
            case "begin":
                events = tuple((type_name, items) for type_name, items in line["events"])
                key, headed = line.get("key") or "", line.get("headed", False)
                sent.setdefault(line["ref"], Sent(line["ref"], events, key, headed))
            case "sealing":
                sent[line["ref"]].sealing = True
                sent[line["ref"]].envelope_id = line["id"]
            case "sealed":
                envelope = sent[line["ref"]]
                envelope.sealed, envelope.sealed_at = True, line["at"]
                envelope.envelope_id, envelope.position = line["id"], line["position"]
    return sent


# -- consumers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """An event in a commit.

    Args:
        type_name: its event type.
        ref: what its emitter calls it, as its items say; empty where it has none.
        runs: the indices of its items in the order in which they came, as runs of first index and length.
        strange: items that nobody sent so, in part.
        headers: its own and those of its envelope.
    """

    type_name: str
    ref: str
    runs: tuple[tuple[int, int], ...]
    strange: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """An envelope that a consumer committed.

    Args:
        begun: when it began to come, in seconds.
        at: when it was committed.
        reign: the number of the broker that handed it out: each take-over has made one more. None where nobody knows.
    """

    envelope_id: str
    begun: float
    at: float
    events: tuple[CommittedEvent, ...]
    reign: int | None = 0

    @property
    def ref(self) -> str:
        """What its emitter calls the envelope, as its items say; empty where it has none."""
        return next((envelope_of(event.ref) for event in self.events if event.ref), "")


def runs_of(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Indices as runs of first index and length."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def read_commits(
    said: Iterable[Mapping[str, Any]], reign_at: Callable[[float], int | None] = lambda _: 0
) -> list[Commit]:
    """The commits in the lines of a consumer, in order.

    Args:
        reign_at: in which reign it registered at a moment; None where nobody knows.
    """
    return [
        Commit(
            line["id"],
            line["begun"],
            line["at"],
            tuple(
                CommittedEvent(
                    type_name, ref, tuple((first, length) for first, length in runs), tuple(strange), headers
                )
                for type_name, ref, runs, strange, headers in line["events"]
            ),
            reign_at(line.get("registered", 0.0)),
        )
        for line in said
    ]


# -- faults ------------------------------------------------------------------------------------------------------------


TAKEOVER = "takeover"
"""The kind of the lines about a broker that took over: ``until`` its forerunner may still hand something out."""

LOST = "lease-lost"
"""The kind of the lines about a broker that lost its lease while its database was struck."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that struck.

    Args:
        kind: what was done.
        target: to whom.
        since: when it began, in seconds.
        until: when all was well again.
        lost: from when to when what was acknowledged may be lost by it; None where nothing may.
    """

    kind: str
    target: str
    since: float
    until: float
    lost: tuple[float, float] | None = None


def read_faults(said: Iterable[Mapping[str, Any]]) -> list[Struck]:
    """The faults in the lines of who struck."""
    struck = []
    for line in said:
        lost = line.get("lost")
        window = (lost[0], lost[1]) if lost else None
        struck.append(Struck(line["kind"], line["target"], line["since"], line["until"], window))
    return struck


# -- all together ------------------------------------------------------------------------------------------------------

Routes = Mapping[str, Mapping[str, tuple[str, ...]]]
"""For each event type the consumer roles that it leads to, each with the workers on the way."""


@dataclass(frozen=True, slots=True)
class Received:
    """An envelope that the journal says is received."""

    position: int
    events: tuple[tuple[str, int], ...]


def owed(envelope: Received, routes: Routes, chained: Collection[str]) -> set[str]:
    """The roles that are owed an envelope; nodes make nothing of events without items."""
    return {role for type_name, items in envelope.events for role in routes[type_name] if items or role not in chained}


@dataclass(frozen=True)
class History:
    """All that is known of a run.

    Args:
        routes: the ways of the items.
        ordered: the roles that want order.
        sent: by ref, of all emitters.
        received: by envelope id, as the journal has them.
        rows: by role and envelope id why an envelope did not go the normal way, in the journal's words.
        commits: of each consumer role.
        faults: what struck.
        chained: the roles that get what nodes made of what was sent. Their commits have the ids and the types of that.
    """

    routes: Routes
    ordered: frozenset[str]
    sent: Mapping[str, Sent]
    received: Mapping[str, Received]
    commits: Mapping[str, Sequence[Commit]]
    faults: Sequence[Struck] = ()
    rows: Mapping[tuple[str, str], str] = field(default_factory=dict)
    chained: frozenset[str] = frozenset()

    @cached_property
    def by_id(self) -> Mapping[str, Sent]:
        """What was sent, by the ids that the emitters know."""
        return {sent.envelope_id: sent for sent in self.sent.values() if sent.envelope_id}

    @property
    def losses(self) -> Sequence[tuple[float, float]]:
        """From when to when databases acknowledged what they have lost."""
        return [fault.lost for fault in self.faults if fault.lost is not None]

    @cached_property
    def takeovers(self) -> Sequence[Struck]:
        """The take-overs: the first one ended the reign 0."""
        return sorted((fault for fault in self.faults if fault.kind == TAKEOVER), key=lambda fault: fault.since)

    @cached_property
    def refs(self) -> Mapping[str, str]:
        """What the emitters call the envelopes, by id, as items at any role say."""
        return {commit.envelope_id: commit.ref for done in self.commits.values() for commit in done if commit.ref}

    def sent_as(self, commit: Commit) -> Sent | None:
        """What a commit is, as its emitter knows it; None where nobody does."""
        ref = commit.ref or self.refs.get(commit.envelope_id, "")
        return self.by_id.get(commit.envelope_id) or self.sent.get(ref)
