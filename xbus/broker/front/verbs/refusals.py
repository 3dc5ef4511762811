"""Remembers which calls about an envelope the front refused, for operators who look for that envelope in vain.

It also remembers the emitters that were told to slow down. The memory is bounded and ends with the process. Of refused
calls it keeps codes alone: the caller got the cause, and it may hold data.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from uuid import UUID

from xbus.broker.front.envelopes import SLOW_DOWN
from xbus.broker.sessions import Sessions
from xbus.clock import Clock
from xbus.errors import CallError, Refused
from xbus.ids import keyed_envelope_id, parse_new_uuid
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import RefusedCall, SlowedEmitter

MOST_REFUSALS = 10_000
"""So many envelopes are remembered, those that were refused last. More takes memory, and reaches further back."""

SLOWED_FOR = timedelta(minutes=1)
"""An emitter that was not told to slow down for so long is no longer held. Longer shows those that pause between."""

KEY_PLACES = {"xbus.start_envelope": 2, "xbus.put_envelope": 3}
"""The verbs that may name an envelope by a key, with the place of their options among the arguments."""

NOTED = frozenset({*KEY_PLACES, "xbus.start_event", "xbus.send_items", "xbus.end_event", "xbus.end_envelope"})
"""The verbs whose refusals are remembered: each has the envelope's id behind the token."""


class Refusals:
    """The last refused call about each envelope.

    Args:
        clock: dates them.
        most: how many envelopes are remembered.
    """

    def __init__(self, clock: Clock, most: int = MOST_REFUSALS) -> None:
        self._clock = clock
        self._most = most
        self._calls: OrderedDict[UUID, RefusedCall] = OrderedDict()
        self._slowed: dict[int, SlowedEmitter] = {}

    def note(self, envelope_id: UUID, name: str, code: str) -> None:
        """Note that a call was refused."""
        self._calls[envelope_id] = {"verb": name, "code": code, "at": self._clock.now().isoformat()}
        self._calls.move_to_end(envelope_id)
        if len(self._calls) > self._most:
            self._calls.popitem(last=False)

    def note_grouped(self, envelope_id: UUID, code: str) -> None:
        """Note that an envelope of a group was refused."""
        if code != "envelope_unknown":
            self.note(envelope_id, "xbus.put_envelopes", code)

    def note_slowed(self, emitter_id: int, name: str, cause: str) -> None:
        """Note that an emitter was told to slow down."""
        at = self._clock.now().isoformat()
        before = self.slowed(emitter_id)
        since, calls = (at, 0) if before is None else (before["since"], before["calls"])
        self._slowed[emitter_id] = {"cause": cause, "verb": name, "since": since, "at": at, "calls": calls + 1}

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        """Give the calls of an emitter that were told to slow down; None where none was in the last minute."""
        found = self._slowed.get(emitter_id)
        if found is None or self._clock.now() - datetime.fromisoformat(found["at"]) > SLOWED_FOR:
            return None
        return found

    def find(self, envelope_id: UUID) -> RefusedCall | None:
        """Give the last refused call about an envelope; None where none is remembered."""
        return self._calls.get(envelope_id)


class RefusalVerbs:
    """The methods are named as the verbs; they need no login, as health.

    Args:
        refusals: those that are remembered.
    """

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    @verb("xbus.refused")
    def refused(self, envelope_id: str) -> RefusedCall | None:
        wanted = parse_new_uuid(envelope_id)
        return None if wanted is None else self._refusals.find(wanted)

    @verb("xbus.slowed")
    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        return self._refusals.slowed(emitter_id)


class RefusalNotes:
    """Notes refused calls about envelopes, for the dispatch of the front.

    Args:
        sessions: the emitters'; they say whose key a caller names.
        refusals: where calls are noted.
    """

    def __init__(self, sessions: Sessions, refusals: Refusals) -> None:
        self._sessions = sessions
        self._refusals = refusals

    def note(self, name: str, args: list[Value], error: CallError) -> None:
        """Note a call that was answered with an error, if it tells of an envelope."""
        match args:
            case [str(token), *_] if error.code == SLOW_DOWN and self._sessions.knows(token):
                self._refusals.note_slowed(self._sessions.owner(token), name, error.cause)
        if name not in NOTED:
            return
        match args:
            case [str(token), str(text), *_] if isinstance(error, Refused) and self._counts(token, error):
                key = _key(name, args)
                envelope_id = parse_new_uuid(text) if key is None else self._keyed(token, key)
                if envelope_id is not None:
                    self._refusals.note(envelope_id, name, error.code)

    def _counts(self, token: str, error: Refused) -> bool:
        """Check whether a refusal tells of an envelope: strangers, and emitters of others, must not fill the memory."""
        return error.code != "envelope_unknown" and self._sessions.knows(token)

    def _keyed(self, token: str, key: str) -> UUID | None:
        try:
            return keyed_envelope_id(self._sessions.owner(token), key)
        except Refused:
            return None


def _key(name: str, args: list[Value]) -> str | None:
    place = KEY_PLACES.get(name, len(args))
    options = args[place] if place < len(args) else None
    key = options.get("key") if isinstance(options, dict) else None
    return key if isinstance(key, str) else None
