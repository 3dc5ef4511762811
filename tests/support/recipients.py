"""Recipients that do as a test tells them: behind the broker's own view of a recipient, without a socket."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from xbus.broker.back.log.batch import RunBatch
from xbus.broker.back.recipients import CallTimeouts, RecipientProxy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.errors import ConnectionLost, Failed, Refused, TimedOut
from xbus.rpc.frames import UNKNOWN_METHOD
from xbus.rpc.owed_calls import AnswerTaker, OverdueCall, pass_on

TIMEOUTS = CallTimeouts(1.0, 2.0, 3.0, 4.0, 5.0)

OLD = Abilities()
"""Takes items one by one."""

NEW = Abilities(batches=True, envelopes=1)
"""Takes items by the batch."""

BUNDLES = replace(NEW, bundles=True)
"""Takes several whole envelopes in one call, too."""

VOTES = replace(BUNDLES, prepares=100)
"""Leaves several of those open for a decision."""

GOES_ON = replace(VOTES, prepares_next=True)
"""Takes the next ones with the decision about these."""

BUNDLE_AT = {"xbus.take_envelopes": 0, "xbus.prepare_envelopes": 0, "xbus.commit_envelopes": 1}
"""The argument of each such call that is a bundle."""

REFUSED = [False, [[[0], "too old"]]]
LOST = ConnectionLost("it went away")
SILENT = TimedOut("it did not answer")
BROKEN = Failed("it failed", code="error_reply")


def metadata(abilities: Abilities) -> dict[str, Any]:
    """What a recipient says of itself."""
    said: dict[str, Any] = {
        "name": "scripted",
        "host": "here",
        "start_date": "2020-02-29T12:00:00",
        "local_time": "2020-02-29T12:00:00",
        "version": 1.0,
        "api_version": 0.1,
    }
    if abilities.batches:
        said["xbus"] = {"batches": 1, "envelopes": abilities.envelopes, "heartbeats": abilities.heartbeats}
    if abilities.bundles:
        said["xbus"]["bundles"] = True
    if abilities.prepares > 0:
        said["xbus"]["prepares"] = abilities.prepares
    if abilities.prepares_next:
        said["xbus"]["prepares_next"] = True
    if abilities.notes:
        said["xbus"]["notes"] = True
    if abilities.bulk_items is not None:
        said["xbus"]["bulk"] = {"min_items": abilities.bulk_items}
    if abilities.bulk_attempts is not None:
        said["xbus"]["bulk"]["attempts"] = sorted(abilities.bulk_attempts)
    return said


@dataclass
class Call:
    """What the broker asked, in the words of the wire."""

    whom: str
    verb: str
    args: tuple[Any, ...]


@dataclass
class Script:
    """What recipients were asked, all together and in order."""

    calls: list[Call] = field(default_factory=list)

    def verbs(self, whom: str) -> list[str]:
        """What one of them was asked."""
        return [call.verb for call in self.calls if call.whom == whom]

    def order(self, verb: str) -> list[str]:
        """Who was asked for ``verb``, in order."""
        return [call.whom for call in self.calls if call.verb == verb]

    def items(self, whom: str, event_id: UUID | None = None) -> list[tuple[list[int], bytes]]:
        """What one of them was given, each item with its indices."""
        given: list[tuple[list[int], bytes]] = []
        for call in self.calls:
            if call.whom != whom:
                continue
            if call.verb in BUNDLE_AT:
                given += _items_of_bundle(call, event_id)
                continue
            if event_id is not None and str(event_id) not in call.args:
                continue
            match call.verb, call.args:
                case "send_item", (_, _, indices, data):
                    given.append((indices, data))
                case "xbus.send_items", (_, _, *batch):
                    given += RunBatch(*batch).singly()
                case "xbus.take_event", (_, _, _, batches, _, *_):
                    for batch in batches:
                        given += RunBatch(*batch).singly()
        return given

    def bundles(self, whom: str) -> list[list[bytes]]:
        """The bundles that one of them was given, each with its items."""
        calls = (call for call in self.calls if call.whom == whom and _bundle_of(call))
        return [[item for _, item in _items_of_bundle(call, None)] for call in calls]


def _bundle_of(call: Call) -> Sequence[Any]:
    """The envelopes that a call brings."""
    return next(iter(call.args[BUNDLE_AT[call.verb] :]), ()) if call.verb in BUNDLE_AT else ()


def _items_of_bundle(call: Call, event_id: UUID | None) -> list[tuple[list[int], bytes]]:
    events = [event for _, events, *_ in _bundle_of(call) for event in events]
    batches = [batch for event, _, batches in events if event_id in (None, UUID(event)) for batch in batches]
    return [single for batch in batches for single in RunBatch(*batch).singly()]


Answer = Any
"""A value, an exception to be raised, a future to be waited for, or a function of the arguments that gives one."""


class ScriptedClient:
    """Stands in for the connection to a recipient.

    Args:
        answers: by verb; what is not named is answered as a recipient does that takes everything.
    """

    def __init__(self, name: str, script: Script, worker: bool, answers: dict[str, Answer]) -> None:
        self.name = name
        self.answers = answers
        self.metadata: Any = metadata(NEW)
        self.closed = False
        self.heard_at: float | None = None
        self.connection: bytes | None = None
        self.owes = asyncio.Event()
        self.owes.set()
        self.timed_out: list[OverdueCall] = []
        self._script = script
        self._worker = worker

    def call(self, verb: str, *args: Any, timeout: float | None = None, renewed: Any = None) -> "asyncio.Future[Any]":
        if verb != "xbus.challenge":  # no call that any test is about: those here know no proof
            self._script.calls.append(Call(self.name, verb, args))
        answer = self.answers.get(verb, self._obliging)
        if callable(answer):
            answer = answer(verb, *args) if answer == self._obliging else answer(*args)
        if isinstance(answer, asyncio.Future):
            return answer
        future = asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def ask(
        self,
        verb: str,
        args: tuple[Any, ...],
        taker: AnswerTaker,
        timeout: float | None = None,
        renewed: Any = None,
    ) -> None:
        pass_on(self.call(verb, *args, timeout=timeout, renewed=renewed), taker)

    def _obliging(self, verb: str, *args: Any) -> Answer:
        match verb, args:
            case "ping", (text,):
                return text
            case "xbus.challenge", _:
                return Refused("there is no method xbus.challenge", code=UNKNOWN_METHOD)
            case "get_metadata", _:
                return self.metadata
            case (("has_clearing" | "has_immediate_reply"), _):
                return [False, None]
            case "stop_envelope", _:
                return True
            case "send_item", (_, _, indices, data) if self._worker:
                return [True, [[indices, data]]]
            case "xbus.send_items", (_, _, *batch) if self._worker:
                return [True, [batch]]
            case "xbus.take_event", (_, _, _, batches, _) if self._worker:
                return [True, None, [list(batch) for batch in batches]]
            case (("xbus.take_envelopes" | "xbus.prepare_envelopes" | "xbus.commit_envelopes"), bundles):
                return [[True]] * sum(map(len, bundles))
            case (("xbus.end_event" | "xbus.take_event"), _):
                return [True, None, []]
        return [True, None]

    @property
    def owed(self) -> int:
        return 0 if self.owes.is_set() else 1

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        return self.timed_out

    async def settled(self) -> None:
        await self.owes.wait()

    def close(self) -> None:
        self.closed = True
        self.owes.set()


class Cast:
    """Makes recipients, and keeps what they are asked."""

    def __init__(self) -> None:
        self.script = Script()
        self.clients: dict[str, ScriptedClient] = {}

    def worker(
        self, name: str, abilities: Abilities = NEW, *, service: str = "", answers: dict[str, Answer] | None = None
    ) -> RecipientProxy:
        """A worker that answers each item as it is, unless ``answers`` say otherwise."""
        return self._recipient(name, service or name, True, abilities, answers)

    def consumer(
        self,
        name: str,
        abilities: Abilities = NEW,
        *,
        service: str = "",
        own: bool = False,
        answers: dict[str, Answer] | None = None,
    ) -> RecipientProxy:
        """A consumer that takes everything, unless ``answers`` say otherwise."""
        consumer = self._recipient(name, service or name, False, abilities, answers)
        consumer.role = replace(consumer.role, own=own)
        return consumer

    def _recipient(
        self, name: str, service: str, worker: bool, abilities: Abilities, answers: dict[str, Answer] | None
    ) -> RecipientProxy:
        client = ScriptedClient(name, self.script, worker, answers or {})
        self.clients[name] = client
        role = RoleEntry(len(self.clients), name, service, worker)
        return RecipientProxy(role, b"", f"tcp://{name}", client, abilities, TIMEOUTS, lambda _: None, lambda: math.inf)


def singles(change: Callable[[list[int], bytes], list[list[Any]]]) -> dict[str, Answer]:
    """Answers of a worker of the old kind: what ``change`` makes of each item."""
    return {"send_item": lambda envelope_id, event_id, indices, data: [True, change(indices, data)]}
