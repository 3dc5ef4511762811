"""The SDK's recipients in virtual time, with a desk in the place of a thread, and authors with moods."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xbus.clock import Clock
from xbus.recipient.base import Consumer, Recipient, Worker
from xbus.recipient.bulk import BulkJobs, BulkWorker
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.envelope import Batch, Envelope, Event
from xbus.recipient.refusal import Refusal
from xbus.recipient.ways import CallBack
from xbus.rpc.deferred import Promise
from xbus.testing.endpoint import RecipientEndpoint, VirtualRecipient
from xbus.testing.network import STOPPED_SECONDS

MENDED = b"mended"
"""How items begin that a person has corrected."""

WORK_SECONDS = (0.0, 0.001, 0.05, 0.8)
"""How long the author's code takes for a call."""

Items = list[tuple[list[int], bytes]]


@dataclass(frozen=True)
class Commit:
    """What a consumer made last: an envelope, its items and its headers by event."""

    at: float
    begun: float
    envelope_id: str
    events: dict[str, Items]
    headers: Mapping[str, Mapping[str, object]]


@dataclass
class Mood:
    """What goes wrong at a recipient."""

    failing: float = 0.0
    """The share of its calls at which the author's code raises."""
    refuses: set[str] = field(default_factory=set)
    """The envelopes that it never takes."""
    bad_items: set[tuple[str, int]] = field(default_factory=set)
    """Envelope and index of the items that it never takes, unless they are mended."""


class SimulatedDesk:
    """Stands in for ``recipient.calls.AuthorThread``: one job after the other, each taking a while."""

    def __init__(self, choices: random.Random, is_stopped: Callable[[], bool]) -> None:
        self._choices = choices
        self._is_stopped = is_stopped
        self._jobs: deque[tuple[Callable[[], Any], Promise[Any]]] = deque()
        self._is_busy = False

    def give(self, job: Callable[[], Any]) -> Promise[Any]:
        outcome: Promise[Any] = Promise()
        self._jobs.append((job, outcome))
        if not self._is_busy:
            self._is_busy = True
            asyncio.get_running_loop().call_later(self._choices.choice(WORK_SECONDS), self._work)
        return outcome

    def finished(self, answer: Any) -> Any:
        return answer

    def close(self) -> None:
        """The jobs given before are still done: what a killed process did before its end can't be told from that."""

    def _work(self) -> None:
        loop = asyncio.get_running_loop()
        if self._is_stopped():
            loop.call_later(STOPPED_SECONDS, self._work)
            return
        job, outcome = self._jobs.popleft()
        tell: Callable[[Any], None] = outcome.set_result
        told: Any
        try:
            told = job()
        except Exception as error:
            tell, told = outcome.set_exception, error
        # Before it is told, as one of those who wait for it may give another job.
        self._is_busy = bool(self._jobs)
        if self._is_busy:
            loop.call_later(self._choices.choice(WORK_SECONDS), self._work)
        tell(told)


class _Moody:
    """What both kinds of authors have in common."""

    def __init__(self, choices: random.Random, mood: Mood) -> None:
        self.choices = choices
        self.mood = mood

    def act(self, envelope: Envelope) -> None:
        if envelope.id in self.mood.refuses:
            raise Refusal("never")
        if self.mood.failing and self.choices.random() < self.mood.failing:
            raise RuntimeError("not now")

    def look_at(self, event: Event, batch: Batch) -> None:
        self.act(event.envelope)
        bad = {index for envelope_id, index in self.mood.bad_items if envelope_id == event.envelope.id}
        named = [item.index for item in batch if item.index in bad and not item.data.startswith(MENDED)]
        if named:
            raise Refusal("bad", named)


class Stamp(_Moody, Worker):
    """Answers one item for each, marked."""

    envelopes = 2

    def on_batch(self, event: Event, batch: Batch) -> Any:
        self.look_at(event, batch)
        return [item.with_value(item.data + b"*") for item in batch]


class Store(_Moody, Consumer):
    """Keeps what it was given, and has it for good at the commit."""

    def __init__(
        self,
        choices: random.Random,
        mood: Mood,
        commits: list[Commit],
        now: Callable[[], float],
        envelopes: int,
    ) -> None:
        super().__init__(choices, mood)
        self.envelopes = envelopes
        self._commits = commits
        self._now = now
        self._open: dict[str, dict[str, Items]] = {}
        self._begun: dict[str, float] = {}
        self._headers: dict[str, dict[str, Mapping[str, object]]] = {}

    def on_event_start(self, event: Event) -> None:
        self.act(event.envelope)
        if event.envelope.id not in self._open:
            self._begun[event.envelope.id] = self._now()
        assert event.id not in self._open.setdefault(event.envelope.id, {}), "an event began twice"
        self._open[event.envelope.id][event.id] = []
        self._headers.setdefault(event.envelope.id, {})[event.id] = event.headers

    def on_batch(self, event: Event, batch: Batch) -> None:
        self.look_at(event, batch)
        self._open[event.envelope.id][event.id] += [(item.indices, item.data) for item in batch]

    def commit(self, envelope: Envelope) -> None:
        self.act(envelope)
        begun = self._begun.pop(envelope.id)
        events, headers = self._open.pop(envelope.id), self._headers.pop(envelope.id)
        self._commits.append(Commit(self._now(), begun, envelope.id, events, headers))

    def rollback(self, envelope: Envelope) -> None:
        self._open.pop(envelope.id, None)
        self._headers.pop(envelope.id, None)


class SimulatedRecipient(VirtualRecipient):
    """A program that serves a role, as its mood has it."""

    def __init__(
        self,
        login: str,
        author: Callable[[Mood], Recipient],
        choices: random.Random,
        clock: Clock,
        call: CallBack,
        name: str,
        *,
        listens: bool,
    ) -> None:
        self.mood = Mood()

        def serve() -> RecipientEndpoint:
            made = author(self.mood)
            desk = cast(AuthorThread, SimulatedDesk(choices, lambda: self.is_stopped))
            jobs = BulkJobs(made, call) if isinstance(made, BulkWorker) else None
            return RecipientEndpoint(made, Calls(made, desk), desk, clock, jobs)

        super().__init__(login, serve, name, listens=listens)


def is_one_of(events: Mapping[str, Items], expected: Mapping[str, Sequence[tuple[list[int], set[bytes]]]]) -> bool:
    """Check whether each item is where it must be, in one of its versions."""
    return events.keys() == expected.keys() and all(
        len(items) == len(expected[event_id])
        and all(
            indices == wanted and data in versions
            for (indices, data), (wanted, versions) in zip(items, expected[event_id], strict=True)
        )
        for event_id, items in events.items()
    )
