"""A front that keeps what it gets in memory and misbehaves when told to, over real sockets."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.doubles import Double
from xbus.errors import Refused
from xbus.ids import keyed_envelope_id
from xbus.rpc.codec import unpack_items
from xbus.rpc.context import Context
from xbus.rpc.dispatch import verb

SILENCE = object()
"""A misbehaviour: the call is carried out, but never answered."""


async def _behind(until: "asyncio.Future[Any]", answer: Any) -> Any:
    await until
    return answer


@dataclass
class Event:
    type_name: str
    items: list[bytes] = field(default_factory=list)
    is_ended: bool = False


@dataclass
class Envelope:
    events: dict[str, Event] = field(default_factory=dict)
    state: str = "open"
    options: dict[str, Any] = field(default_factory=dict)
    holder: str = ""


class FrontDouble(Double):
    """Serves the front's batch verbs with the contract's rules of repeats.

    Attributes:
        envelopes: what came, by id.
        batches: the number of items of each batch, in order.
        after: called once, after the next call of a verb was carried out and before it is answered.
        replies: the immediate replies that the next ends of events wait for.
        replays: what was replayed, by the id of the new envelope.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.limits = {"session_seconds": 3600, "max_item_bytes": 1000, "max_batch_bytes": 5000}
        self.logins = 0
        self.envelopes: dict[str, Envelope] = {}
        self.batches: list[int] = []
        self.after: dict[str, Callable[[], None]] = {}
        self.replies: deque[asyncio.Future[Any]] = deque()
        self.replays: dict[str, str] = {}
        self._awaited: list[asyncio.Future[Any]] = []

    def restart(self) -> None:
        """Go down and come back with what was durable and no session; an answered opening may be forgotten."""
        self.stop()
        self._awaited.clear()
        self.tokens.clear()
        self.start_again()

    def fail_next(self, name: str, *faults: Any) -> None:
        """Let the next calls of a verb end otherwise: an exception is raised, ``SILENCE`` kept, a future waited for
        before the answer is given, None means nothing."""
        self.faults[name].extend(faults)

    def only(self) -> Envelope:
        """The one envelope that came."""
        (envelope,) = self.envelopes.values()
        return envelope

    def _called(self, name: str, answer: Callable[[], Any]) -> Any:
        self.calls.append(name)
        fault = self.faults[name].popleft() if self.faults[name] else None
        if isinstance(fault, Exception):
            raise fault
        result = answer()
        if name in self.after:
            self.after.pop(name)()
        if isinstance(fault, asyncio.Future):
            return _behind(fault, result)
        return asyncio.get_running_loop().create_future() if fault is SILENCE else result

    def _check(self, token: str) -> None:
        if token not in self.tokens:
            raise Refused("the session is unknown", "log in", code="session_unknown")

    def _check_holder(self, token: str, envelope_id: str) -> None:
        envelope = self.envelopes.get(envelope_id)
        if envelope is not None and envelope.holder not in ("", token):
            raise Refused("another session has it", code="session_superseded")

    def _envelope(self, envelope_id: str) -> Envelope:
        if envelope_id not in self.envelopes:
            raise Refused("no such envelope", code="envelope_unknown")
        return self.envelopes[envelope_id]

    def _event(self, envelope_id: str, event_id: str) -> Event:
        events = self._envelope(envelope_id).events
        if event_id not in events:
            raise Refused("no such event", code="event_unknown")
        return events[event_id]

    @verb("xbus.login")
    def login(self, login: str, password: str) -> Any:
        def answer() -> dict[str, Any]:
            if (login, password) != ("test_emitter", "password"):
                raise Refused("login or password are wrong", code="login_refused")
            self.logins += 1
            self.tokens.add(f"token {self.logins}")
            return {"token": f"token {self.logins}", **self.limits}

        return self._called("login", answer)

    @verb("xbus.logout")
    def logout(self, token: str) -> Any:
        self.tokens.discard(token)
        return self._called("logout", lambda: True)

    @verb("xbus.renew")
    def renew(self, token: str) -> Any:
        self._check(token)
        return self._called("renew", lambda: True)

    @verb("xbus.start_envelope")
    def start_envelope(self, token: str, envelope_id: str, options: dict[str, Any] | None = None) -> Any:
        self._check(token)

        def answer() -> str:
            key = (options or {}).get("key")
            made_id = envelope_id if key is None else str(keyed_envelope_id(1, key))
            envelope = self.envelopes.setdefault(made_id, Envelope(options=options or {}))
            envelope.holder = token if key else ""
            return made_id

        return self._called("start_envelope", answer)

    @verb("xbus.start_event")
    def start_event(self, token: str, envelope_id: str, event_id: str, type_name: str, estimate: int) -> Any:
        self._check(token)

        def answer() -> str:
            if type_name != "test_event":
                raise Refused(f"there is no event type {type_name}", "see xbus export", code="unknown_type")
            self._envelope(envelope_id).events.setdefault(event_id, Event(type_name))
            return event_id

        return self._called("start_event", answer)

    @verb("xbus.send_items")
    def send_items(self, token: str, envelope_id: str, event_id: str, first_index: int, items: int, data: bytes) -> Any:
        self._check(token)
        self._check_holder(token, envelope_id)

        def answer() -> int:
            event = self._event(envelope_id, event_id)
            unpacked = unpack_items(data, items)
            if first_index > len(event.items):
                raise Refused("a gap", code="index_gap")
            if first_index == len(event.items):
                self.batches.append(items)
                event.items += unpacked
            if event.items[first_index : first_index + items] != unpacked:
                raise Refused("other content", code="content_differs")
            return len(event.items)

        return self._called("send_items", answer)

    @verb("xbus.end_event")
    def end_event(self, token: str, envelope_id: str, event_id: str, items: int) -> Any:
        self._check(token)

        async def ended(event: Event, reply: asyncio.Future[Any]) -> dict[str, Any]:
            answer = {"items": items, "reply": await reply}
            event.is_ended = True
            self._awaited.remove(reply)
            return answer

        def answer() -> Any:
            event = self._event(envelope_id, event_id)
            if len(event.items) != items:
                raise Refused("not so many", code="count_mismatch")
            if self.replies:
                self._awaited.append(self.replies.popleft())
                return ended(event, self._awaited[-1])
            event.is_ended = True
            return {"items": items, "reply": f"reply to {items}"}

        return self._called("end_event", answer)

    @verb("xbus.get_consumers")
    def get_consumers(self, token: str) -> Any:
        self._check(token)
        return self._called("get_consumers", lambda: [({"name": "store"}, {"clearing": [False, None]})])

    @verb("xbus.retry_event")
    def retry_event(self, token: str, event_id: str) -> Any:
        self._check(token)
        return self._called("retry_event", lambda: f"again {event_id}")

    @verb("xbus.replay_envelope")
    def replay_envelope(self, token: str, envelope_id: str, new_envelope_id: str) -> Any:
        self._check(token)

        def answer() -> str:
            self.replays[new_envelope_id] = envelope_id
            return new_envelope_id

        return self._called("replay_envelope", answer)

    @verb("xbus.end_envelope")
    def end_envelope(self, token: str, envelope_id: str, events: int) -> Any:
        self._check(token)

        async def behind(awaited: list[asyncio.Future[Any]]) -> Any:
            await asyncio.gather(*awaited)
            return answer()

        def answer() -> Any:
            envelope = self._envelope(envelope_id)
            if self._awaited:
                return behind(self._awaited)
            if len(envelope.events) != events or not all(event.is_ended for event in envelope.events.values()):
                raise Refused("an event is open", code="event_open")
            envelope.state = "sealed"
            return self._receipt(envelope_id)

        return self._called("end_envelope", answer)

    @verb("xbus.cancel_envelope")
    def cancel_envelope(self, token: str, envelope_id: str) -> Any:
        self._check(token)

        def answer() -> bool:
            self._envelope(envelope_id).state = "cancelled"
            return True

        return self._called("cancel_envelope", answer)

    @verb("xbus.put_envelope")
    def put_envelope(
        self, token: str, envelope_id: str, events: list[Any], options: dict[str, Any] | None = None
    ) -> Any:
        self._check(token)

        def answer() -> dict[str, Any]:
            self.envelopes[envelope_id] = Envelope(
                {id_: Event(type_name, unpack_items(data, items), True) for id_, type_name, items, data in events},
                "sealed",
                options or {},
            )
            return self._receipt(envelope_id)

        return self._called("put_envelope", answer)

    def _receipt(self, envelope_id: str) -> dict[str, Any]:
        events = self.envelopes[envelope_id].events
        return {
            "envelope_id": envelope_id,
            "position": list(self.envelopes).index(envelope_id) + 1,
            "events": len(events),
            "items": sum(len(event.items) for event in events.values()),
            "hash": b"hash",
        }
