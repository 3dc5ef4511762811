"""The front's verbs for what is sealed, and for those who get it: as xbus.broker 0.2.0 had them, and with a code."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from xbus.broker.answers import coded_answer, old_answer
from xbus.broker.front.replay import Replay, event_unknown
from xbus.broker.front.verbs.emitters import known_envelope, own_id
from xbus.broker.sessions import Sessions
from xbus.ids import parse_uuid
from xbus.rpc.dispatch import verb

Introduction: TypeAlias = tuple[Mapping[str, object], Mapping[str, Sequence[object]]]
"""The metadata and the features of a consumer."""


class _Calls:
    """The calls as both kinds of verbs carry them out.

    Args:
        repeating: what carries the calls out.
        sessions: the emitters'.
    """

    def __init__(self, repeating: Replay, sessions: Sessions) -> None:
        self._repeating = repeating
        self._sessions = sessions

    async def _consumers(self, token: str) -> list[Introduction]:
        """List the introductions of the consumers, in the form of the wire."""
        emitter_id = self._sessions.owner(token)
        return [(consumer.metadata, consumer.features) for consumer in await self._repeating.consumers(emitter_id)]

    async def _retry(self, token: str, event_id: str) -> str:
        emitter_id = self._sessions.owner(token)
        return str(await self._repeating.retry(emitter_id, known_event_alone(event_id)))

    async def _replay(self, token: str, envelope_id: str, new_envelope_id: str | None = None) -> str:
        emitter_id = self._sessions.owner(token)
        made_id = None if new_envelope_id is None else own_id(new_envelope_id, "new_envelope_id")
        return str(await self._repeating.replay(emitter_id, known_envelope(envelope_id), made_id))


class RepeatVerbs(_Calls):
    """One method per verb of wire.md, named as the verb."""

    @verb("get_consumers")
    @old_answer([])
    async def get_consumers(self, token: str) -> list[Introduction]:
        return await self._consumers(token)

    @verb("retry_event")
    @old_answer("")
    async def retry_event(self, token: str, event_id: str) -> str:
        return await self._retry(token, event_id)

    @verb("replay_envelope")
    @old_answer("")
    async def replay_envelope(self, token: str, envelope_id: str) -> str:
        return await self._replay(token, envelope_id)


class RepeatBatchVerbs(_Calls):
    """One method per verb of the namespace ``xbus``, named as the verb."""

    @verb("xbus.get_consumers")
    @coded_answer
    async def get_consumers(self, token: str) -> list[Introduction]:
        return await self._consumers(token)

    @verb("xbus.retry_event")
    @coded_answer
    async def retry_event(self, token: str, event_id: str) -> str:
        return await self._retry(token, event_id)

    @verb("xbus.replay_envelope")
    @coded_answer
    async def replay_envelope(self, token: str, envelope_id: str, new_envelope_id: str | None = None) -> str:
        return await self._replay(token, envelope_id, new_envelope_id)


def known_event_alone(text: str) -> UUID:
    """Read the event id that a caller wrote.

    Raises:
        Refused: event_unknown, as nothing else can be known by such a name.
    """
    event_id = parse_uuid(text)
    if event_id is None:
        raise event_unknown(repr(text[:64]))
    return event_id
