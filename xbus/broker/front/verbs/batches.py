"""The front's added verbs: batches, whole envelopes, calls that may be repeated, errors with a code.

Ids are made by the caller, so that it can send call after call without waiting for an answer, and any of them again.
"""

from collections.abc import Awaitable

from xbus.broker.answers import coded_answer
from xbus.broker.front.envelopes import EndedEvent, EnvelopeLimits, NewEvent, head_of, number_of, tags_of
from xbus.broker.front.front import Front
from xbus.broker.front.verbs.emitters import check_own, known_envelope, known_event, new_id, own_id, reply_value
from xbus.broker.journal.writes import SealReceipt
from xbus.broker.sessions import Sessions
from xbus.errors import Refused
from xbus.ids import token_hash
from xbus.rpc.codec import Value
from xbus.rpc.deferred import Answer, map_answer
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.messages import EnvelopeOptionsMap, EnvelopeReceipt, EventEnd, EventOptionsMap, FrontLimitsMap, FrontLogin


class FrontBatchVerbs:
    """One method per verb of the namespace ``xbus``, named as the verb; ``GroupIntake`` has the one for groups.

    Args:
        front: carries the calls out.
        sessions: the emitters'.
        limits: part of the answer to a login.
        session_seconds: part of the answer to a login.
        reply_seconds: how long an emitter waits for an immediate reply; part of the answer to a login.
    """

    def __init__(
        self,
        front: Front,
        sessions: Sessions,
        limits: EnvelopeLimits,
        session_seconds: float,
        reply_seconds: float,
    ) -> None:
        self._front = front
        self._sessions = sessions
        self._limits = limits
        self._session_seconds = session_seconds
        self._reply_seconds = reply_seconds

    @verb("xbus.login")
    @coded_answer
    def login(self, login: str, password: str) -> Awaitable[FrontLogin]:
        # Now, as it is known only during the call who makes it.
        return self._logged_in(self._sessions.login(login, password))

    async def _logged_in(self, session: Awaitable[str]) -> FrontLogin:
        return {"token": await session, **self._told_limits()}

    @verb("xbus.get_limits")
    @coded_answer
    def get_limits(self, token: str) -> FrontLimitsMap:
        self._sessions.owner(token)
        return self._told_limits()

    def _told_limits(self) -> FrontLimitsMap:
        return {
            "session_seconds": int(self._session_seconds),
            "max_item_bytes": self._limits.item_bytes,
            "max_batch_bytes": self._limits.batch_bytes,
            "max_envelope_items": self._limits.envelope_items,
            "max_envelope_bytes": self._limits.envelope_bytes,
            "immediate_reply_timeout": self._reply_seconds,
            "headers": True,
            "groups": True,
            "numbers": True,
        }

    @undoes("xbus.login")
    def undo_login(self, answer: FrontLogin) -> None:
        self._sessions.take_back(answer["token"])

    @verb("xbus.logout")
    @coded_answer
    async def logout(self, token: str) -> bool:
        await self._sessions.logout(token)
        return True

    @verb("xbus.renew")
    @coded_answer
    def renew(self, token: str) -> bool:
        self._sessions.owner(token)
        return True

    @verb("xbus.start_envelope")
    @coded_answer
    def start_envelope(self, token: str, envelope_id: str, options: EnvelopeOptionsMap | None = None) -> Answer[str]:
        emitter_id = self._sessions.owner(token)
        said = head_of(options)
        if said.key is not None:
            return map_answer(self._front.start_keyed(emitter_id, token_hash(token), said), str)
        made_id = own_id(envelope_id, "envelope_id")
        return map_answer(self._front.start_envelope(emitter_id, made_id, is_new=False, options=said), str)

    @verb("xbus.start_event")
    @coded_answer
    def start_event(
        self,
        token: str,
        envelope_id: str,
        event_id: str,
        type_name: str,
        estimate: int,
        options: EventOptionsMap | None = None,
    ) -> Answer[str]:
        emitter_id = self._sessions.owner(token)
        number, others = number_of(options)
        tags = tags_of(others)
        made_id = new_id(event_id, "event_id")
        in_envelope = self._front.held(emitter_id, token, known_envelope(envelope_id))
        return map_answer(
            self._front.start_event(emitter_id, in_envelope, made_id, type_name, estimate, tags, number), str
        )

    @verb("xbus.send_items")
    @coded_answer
    def send_items(
        self, token: str, envelope_id: str, event_id: str, first_index: int, items: int, data: bytes
    ) -> Answer[int]:
        emitter_id = self._sessions.owner(token)
        if first_index < 0:
            raise Refused(f"first_index {first_index} is below 0", "count items from 0", code="wrong_arguments")
        of_envelope, event = known_event(envelope_id, event_id)
        held = self._front.held(emitter_id, token, of_envelope)
        return self._front.append(emitter_id, held, event, first_index, items, data)

    @verb("xbus.end_event")
    @coded_answer
    def end_event(self, token: str, envelope_id: str, event_id: str, items: int) -> Answer[EventEnd]:
        emitter_id = self._sessions.owner(token)
        of_envelope, event = known_event(envelope_id, event_id)
        ended = self._front.end_event(emitter_id, self._front.held(emitter_id, token, of_envelope), event, items)
        return map_answer(ended, _end_map)

    @verb("xbus.end_envelope")
    @coded_answer
    def end_envelope(self, token: str, envelope_id: str, events: int) -> Answer[EnvelopeReceipt]:
        emitter_id = self._sessions.owner(token)
        held = self._front.held(emitter_id, token, known_envelope(envelope_id))
        return map_answer(self._front.end_envelope(emitter_id, held, events), _receipt_map)

    @verb("xbus.cancel_envelope")
    @coded_answer
    def cancel_envelope(self, token: str, envelope_id: str) -> Answer[bool]:
        emitter_id = self._sessions.owner(token)
        return self._front.cancel_envelope(emitter_id, self._front.held(emitter_id, token, known_envelope(envelope_id)))

    @verb("xbus.put_envelope")
    @coded_answer
    def put_envelope(
        self, token: str, envelope_id: str, events: list[Value], options: EnvelopeOptionsMap | None = None
    ) -> Answer[EnvelopeReceipt]:
        emitter_id = self._sessions.owner(token)
        said = head_of(options)
        if said.key is not None:
            new_events = [_new_event(event) for event in events]
            return self._front.put_keyed(emitter_id, token_hash(token), new_events, said).map(_receipt_map)
        made_id = own_id(envelope_id, "envelope_id")
        put = self._front.put_envelope(emitter_id, made_id, [_own_event(event) for event in events], said)
        return map_answer(put, _receipt_map)


def _end_map(end: EndedEvent) -> EventEnd:
    return {"items": end.items, "reply": reply_value(end), "replied": end.reply is not None}


def _own_event(event: Value) -> NewEvent:
    made = _new_event(event)
    check_own(made.event_id, "event_id")
    return made


def _new_event(event: Value) -> NewEvent:
    match event:
        case [str(event_id), str(type_name), int(items), bytes(data)] if items >= 0 and not isinstance(items, bool):
            return NewEvent(new_id(event_id, "event_id"), type_name, items, data)
        case [str(event_id), str(type_name), int(items), bytes(data), dict(options)] if items >= 0 and not isinstance(
            items, bool
        ):
            return NewEvent(new_id(event_id, "event_id"), type_name, items, data, tags_of(options))
    raise Refused(
        "an event of the envelope is not a list of its id, type, number of items and data",
        "write each event as [event_id, type_name, items, data] or [event_id, type_name, items, data, options]",
        code="wrong_arguments",
    )


def _receipt_map(receipt: SealReceipt) -> EnvelopeReceipt:
    return {
        "envelope_id": str(receipt.envelope_id),
        "position": receipt.position,
        "events": receipt.events,
        "items": receipt.items,
        "hash": receipt.hash,
    }
