"""Immediate replies: asked for, given, called off."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from xbus.broker.journal.writes.write import Write
from xbus.states import ReplyState


@dataclass(frozen=True, slots=True)
class AskReply(Write[None]):
    """The emitter of an event waits for its immediate reply, or does so again: see ``model.reply``."""

    event_id: UUID
    envelope_id: UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class CallOffAsks(Write[None]):
    """Cancel all requests for replies: the front that made them has gone down, and emitters ask the next one anew.

    Args:
        code: the code of the lack of replies.
        cause: the same in a sentence.
    """

    code: str
    cause: str


@dataclass(frozen=True, slots=True)
class MoveReply(Write[None]):
    """Move an immediate reply to another state.

    Args:
        role_id: the role that gave it, at ``HELD``.
        data: the reply in msgpack, at ``HELD``.
        code: the code of its failure, at ``FAILED``.
        cause: the same in a sentence.
    """

    event_id: UUID
    envelope_id: UUID
    state: ReplyState
    role_id: int | None = None
    data: bytes | None = None
    code: str | None = None
    cause: str | None = None
