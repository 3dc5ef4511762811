"""A front that keeps what it gets in memory and misbehaves when told to, over real sockets."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from tests.support.doubles import Double
from xbus.errors import CallError, ProtocolError, Refused
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.rpc.codec import unpack_items
from xbus.rpc.context import Context
from xbus.rpc.dispatch import verb

HEAD_FIELDS = ("ordering_key", "key", "headers")
"""The head of an envelope in a group, as it is on the wire."""

SILENCE = object()
"""A misbehaviour: the call is carried out, but never answered."""


async def _behind(until: "asyncio.Future[Any]", answer: Any) -> Any:
    await until
    return answer


def retried_id(event_id: str) -> str:
    """The id of the event that repeats another one; the same each time."""
    return str(uuid5(UUID(event_id), "again"))


def _closed() -> Refused:
    return Refused("the envelope is sealed or cancelled", code="envelope_closed")


def _made_id(envelope_id: str, options: dict[str, Any] | None) -> str:
    """The id of an envelope: of its key, where it has one."""
    key = (options or {}).get("key")
    return envelope_id if key is None else str(keyed_envelope_id(1, key))


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
    """Serves the front's batch verbs; ``test_front_contract.py`` holds it to the answers of the real front.

    Attributes:
        envelopes: what came, by id.
        batches: the number of items of each batch, in order.
        after: called once, after the next call of a verb was carried out and before it is answered.
        replies: the immediate replies that the next ends of events wait for.
        replays: what was replayed, by the id of the new envelope.
        failed: the events that a recipient failed at, so that they may be retried.
        groups: the number of envelopes of each message of groups.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.limits = {"session_seconds": 3600, "max_item_bytes": 1000, "max_batch_bytes": 5000, "groups": True}
        self.logins = 0
        self.envelopes: dict[str, Envelope] = {}
        self.batches: list[int] = []
        self.after: dict[str, Callable[[], None]] = {}
        self.replies: deque[asyncio.Future[Any]] = deque()
        self.replays: dict[str, str] = {}
        self.failed: set[str] = set()
        self.groups: list[int] = []
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
        envelope = self._envelope(envelope_id)
        if envelope.state == "cancelled":
            raise _closed()
        if event_id not in envelope.events:
            raise Refused("no such event", code="event_unknown")
        return envelope.events[event_id]

    def _unpacked(self, items: int, data: bytes) -> list[bytes]:
        if len(data) > self.limits["max_batch_bytes"]:
            raise Refused("the batch is too large", code="batch_too_large")
        try:
            unpacked = unpack_items(data, items)
        except ProtocolError as error:
            raise Refused("not so many items", code="bad_items") from error
        if any(len(item) > self.limits["max_item_bytes"] for item in unpacked):
            raise Refused("an item is too large", code="item_too_large")
        return unpacked

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
        self._check(token)
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
            made_id = _made_id(envelope_id, options)
            envelope = self.envelopes.setdefault(made_id, Envelope(options=options or {}))
            envelope.holder = token if made_id != envelope_id else ""
            return made_id

        return self._called("start_envelope", answer)

    @verb("xbus.start_event")
    def start_event(self, token: str, envelope_id: str, event_id: str, type_name: str, estimate: int) -> Any:
        self._check(token)

        def answer() -> str:
            if type_name != "test_event":
                raise Refused(f"there is no event type {type_name}", "see xbus export", code="unknown_type")
            envelope = self._envelope(envelope_id)
            if event_id not in envelope.events and envelope.state != "open":
                raise _closed()
            envelope.events.setdefault(event_id, Event(type_name))
            return event_id

        return self._called("start_event", answer)

    @verb("xbus.send_items")
    def send_items(self, token: str, envelope_id: str, event_id: str, first_index: int, items: int, data: bytes) -> Any:
        self._check(token)
        self._check_holder(token, envelope_id)

        def answer() -> int:
            event = self._event(envelope_id, event_id)
            unpacked = self._unpacked(items, data)
            if first_index > len(event.items):
                raise Refused("a gap", code="index_gap")
            if first_index == len(event.items):
                if self._envelope(envelope_id).state != "open":
                    raise _closed()
                if event.is_ended:
                    raise Refused("the event is ended", code="event_closed")
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
            answer = {"items": items, "reply": await reply, "replied": True}
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
            return {"items": items, "reply": f"reply to {items}", "replied": True}

        return self._called("end_event", answer)

    @verb("xbus.get_consumers")
    def get_consumers(self, token: str) -> Any:
        self._check(token)
        return self._called("get_consumers", lambda: [({"name": "store"}, {"clearing": [False, None]})])

    @verb("xbus.retry_event")
    def retry_event(self, token: str, event_id: str) -> Any:
        self._check(token)

        def answer() -> str:
            if all(event_id not in envelope.events for envelope in self.envelopes.values()):
                raise Refused("no such event", code="event_unknown")
            if event_id not in self.failed:
                raise Refused("nobody failed at it", code="nothing_to_retry")
            return retried_id(event_id)

        return self._called("retry_event", answer)

    @verb("xbus.replay_envelope")
    def replay_envelope(self, token: str, envelope_id: str, new_envelope_id: str) -> Any:
        self._check(token)

        def answer() -> str:
            if self._envelope(envelope_id).state != "sealed":
                raise Refused("it is not sealed", code="envelope_open")
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
            if envelope.state == "cancelled":
                raise _closed()
            if not all(event.is_ended for event in envelope.events.values()):
                raise Refused("an event is open", code="event_open")
            if len(envelope.events) != events:
                raise Refused("not so many", code="count_mismatch")
            envelope.state = "sealed"
            return self._receipt(envelope_id)

        return self._called("end_envelope", answer)

    @verb("xbus.cancel_envelope")
    def cancel_envelope(self, token: str, envelope_id: str) -> Any:
        self._check(token)
        self._check_holder(token, envelope_id)

        def answer() -> bool:
            envelope = self._envelope(envelope_id)
            if envelope.state == "sealed":
                raise _closed()
            envelope.state = "cancelled"
            return True

        return self._called("cancel_envelope", answer)

    @verb("xbus.put_envelopes")
    def put_envelopes(self, token: str, envelopes: list[Any], in_order: bool = False) -> Any:
        self._check(token)
        self.groups.append(len(envelopes))

        def answer() -> Any:
            told: list[Any] = []
            for each in envelopes:
                is_behind = in_order and told and isinstance(told[-1], dict)
                told.append({**told[-1], "refused": False} if is_behind else self._put_one(*each))
            return told

        return self._called("put_envelopes", answer)

    def _put_one(self, *entry: Any) -> Any:
        try:
            receipt = self._take_whole(*entry)
        except CallError as error:
            told = {name: getattr(error, name) for name in ("code", "cause", "next_step", "details")}
            return {"refused": isinstance(error, Refused), **told}
        return [UUID(receipt["envelope_id"]).bytes, receipt["position"], receipt["hash"]]

    def _take_whole(
        self, envelope_id: Any, event_id: Any, type_name: str, items: int, data: bytes, head: Any, _: Any
    ) -> dict[str, Any]:
        options = {name: given for name, given in zip(HEAD_FIELDS, head or (), strict=False) if given is not None}
        key = options.get("key")
        if self.faults[f"put {key}"] and (fault := self.faults[f"put {key}"].popleft()) is not None:
            raise fault
        if type_name != "test_event":
            raise Refused(f"there is no event type {type_name}", code="unknown_type")
        made_id = str(UUID(bytes=envelope_id)) if key is None else str(keyed_envelope_id(1, key))
        made_event = str(UUID(bytes=event_id) if key is None else numbered_event_id(UUID(made_id), 1))
        put = Envelope({made_event: Event(type_name, self._unpacked(items, data), True)}, "sealed", options)
        known = self.envelopes.setdefault(made_id, put)
        if known.state != "sealed" or made_event not in known.events:
            raise _closed()
        if known.events != put.events:
            raise Refused("other content", code="content_differs")
        return self._receipt(made_id)

    def _receipt(self, envelope_id: str) -> dict[str, Any]:
        events = self.envelopes[envelope_id].events
        return {
            "envelope_id": envelope_id,
            "position": list(self.envelopes).index(envelope_id) + 1,
            "events": len(events),
            "items": sum(len(event.items) for event in events.values()),
            "hash": b"hash",
        }
