"""The front's verbs of wire.md, as emitters of xbus.broker 0.2.0 call them; a refusal is answered, never raised."""

from collections.abc import Awaitable
from uuid import UUID

from xbus.broker.answers import old_answer
from xbus.broker.front.envelopes import EndedEvent, envelope_unknown, event_unknown
from xbus.broker.front.front import Front
from xbus.broker.sessions import OLD_LOGIN_SECONDS, Sessions
from xbus.errors import Refused
from xbus.ids import Ids, is_computed, parse_new_uuid, parse_uuid
from xbus.rpc.codec import Value, unpack
from xbus.rpc.deferred import Answer, Deferred, map_answer
from xbus.rpc.dispatch import undoes, verb


class FrontVerbs:
    """One method per verb, named as the verb.

    Args:
        front: what carries the calls out.
        sessions: the emitters'.
        ids: makes the ids of envelopes and events.
    """

    def __init__(self, front: Front, sessions: Sessions, ids: Ids) -> None:
        self._front = front
        self._sessions = sessions
        self._ids = ids

    @verb("login")
    @old_answer("")
    def login(self, login: str, password: str) -> Awaitable[str]:
        return self._sessions.login(login, password, OLD_LOGIN_SECONDS)

    @undoes("login")
    def undo_login(self, token: str) -> None:
        self._sessions.take_back(token)

    @verb("logout")
    @old_answer(False)
    async def logout(self, token: str) -> bool:
        await self._sessions.logout(token)
        return True

    @verb("start_envelope")
    @old_answer("")
    def start_envelope(self, token: str) -> str:
        text, envelope_id = self._new_id()
        self._front.start_envelope(self._sessions.owner(token), envelope_id, is_new=True)
        return text

    @verb("start_event")
    @old_answer("")
    def start_event(self, token: str, envelope_id: str, event_name: str, estimate: int) -> Answer[str]:
        emitter_id = self._sessions.owner(token)
        text, event_id = self._new_id()
        in_envelope = self._front.held(emitter_id, token, known_envelope(envelope_id))
        started = self._front.start_event(emitter_id, in_envelope, event_id, event_name, estimate)
        return map_answer(started, str) if isinstance(started, Deferred) else text

    @verb("send_item")
    @old_answer(False)
    def send_item(self, token: str, envelope_id: str, event_id: str, data: bytes) -> Answer[bool]:
        emitter_id = self._sessions.owner(token)
        of_envelope, event = known_event(envelope_id, event_id)
        appended = self._front.append_item(emitter_id, self._front.held(emitter_id, token, of_envelope), event, data)
        return map_answer(appended, lambda _: True)

    @verb("end_event")
    @old_answer((False, None))
    def end_event(self, token: str, envelope_id: str, event_id: str) -> Answer[tuple[bool, Value]]:
        emitter_id = self._sessions.owner(token)
        of_envelope, event = known_event(envelope_id, event_id)
        ended = self._front.end_event(emitter_id, self._front.held(emitter_id, token, of_envelope), event, None)
        return map_answer(ended, lambda ended: (True, reply_value(ended)))

    @verb("end_envelope")
    @old_answer(False)
    def end_envelope(self, token: str, envelope_id: str) -> Answer[bool]:
        emitter_id = self._sessions.owner(token)
        held = self._front.held(emitter_id, token, known_envelope(envelope_id))
        return map_answer(self._front.end_envelope(emitter_id, held, None), lambda _: True)

    @verb("cancel_envelope")
    @old_answer(False)
    def cancel_envelope(self, token: str, envelope_id: str) -> Answer[bool]:
        emitter_id = self._sessions.owner(token)
        return self._front.cancel_envelope(emitter_id, self._front.held(emitter_id, token, known_envelope(envelope_id)))

    def _new_id(self) -> tuple[str, UUID]:
        """Make an id as its caller will write it, and the very object that ``parse_uuid`` gives for that text."""
        text = self._ids.new_text()
        return text, known_envelope(text)


def reply_value(ended: EndedEvent) -> Value:
    """Unpack the immediate reply for the wire; None without one."""
    return None if ended.reply is None else unpack(ended.reply)


def known_envelope(text: str) -> UUID:
    """Read the envelope id that a caller wrote.

    Raises:
        Refused: envelope_unknown, as nothing else can be known by such a name.
    """
    envelope_id = parse_uuid(text)
    if envelope_id is None:
        raise envelope_unknown(repr(text[:64]))
    return envelope_id


def known_event(envelope_id: str, event_id: str) -> tuple[UUID, UUID]:
    """Read the envelope id and the event id that a caller wrote.

    Raises:
        Refused: envelope_unknown, event_unknown.
    """
    parsed = parse_uuid(event_id)
    if parsed is None:
        raise event_unknown(repr(event_id[:64]), repr(envelope_id[:64]))
    return known_envelope(envelope_id), parsed


def new_id(text: str, what: str) -> UUID:
    """Read an id that a caller made.

    Raises:
        Refused: wrong_arguments.
    """
    parsed = parse_new_uuid(text)
    if parsed is None:
        raise Refused(f"{what} {text[:64]!r} is not a UUID", "make it with uuid.uuid4()", code="wrong_arguments")
    return parsed


def own_id(text: str, what: str) -> UUID:
    """Read an id that a caller chose, and that is none of those that the bus computes.

    Raises:
        Refused: wrong_arguments.
    """
    made = new_id(text, what)
    check_own(made, what)
    return made


def check_own(made: UUID, what: str) -> None:
    """Let an id pass that the bus never computes of a key: whoever took such a one would keep its owner out.

    Raises:
        Refused: wrong_arguments.
    """
    if is_computed(made):
        raise Refused(
            f"{what} {made} is a UUID of version 5, and these are the bus's own",
            "make it with uuid.uuid4()",
            code="wrong_arguments",
        )
