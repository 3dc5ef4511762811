"""Finds who or what keeps envelopes in a full journal, so that its operator knows where to begin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.retention.rules import read_keepings
from xbus.broker.journal.writes import BUS_WIDE
from xbus.states import DeliveryState

MOST_NAMED = 5
"""The most names of a kind. More tell an operator nothing, and make the message long."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The names of what keeps envelopes in the journal, at most :data:`MOST_NAMED` of a kind.

    Args:
        roles: logins of consumer roles that are behind.
        services: consumer services without a role.
        readers: readers that keep, and have not read to the end.
        parked_for: logins of roles for which envelopes are parked.
        types: event types that no age removes.
    """

    roles: Sequence[str] = ()
    services: Sequence[str] = ()
    readers: Sequence[str] = ()
    parked_for: Sequence[str] = ()
    types: Sequence[str] = ()

    def next_step(self) -> str:
        """Write what an operator can do, in one sentence."""
        steps = [
            words.format(", ".join(names))
            for names, words in (
                (self.roles, "have roles that are behind catch up or detach them ({})"),
                (self.services, "give services a role ({})"),
                (self.readers, "have readers that are behind read on, or set keeps = false ({})"),
                (self.parked_for, "decide about what is parked for roles ({})"),
                (self.types, "give types that are kept for ever a limit or an archive ({})"),
            )
            if names
        ]
        return "; ".join([*steps, "or raise [journal] max_bytes"]) if steps else "raise [journal] max_bytes"


def read_holders(connection: sa.Connection, otherwise: float) -> Holders:
    """Read what holds the journal's space.

    Args:
        otherwise: the seconds for which types without a limit of their own are kept; infinite for ever.
    """
    values = {"head": read_head(connection)}
    roles, services, readers, parked_for = (connection.execute(each, values).scalars().all() for each in _QUESTIONS)
    keepings = read_keepings(connection)
    kept = (
        name
        for type_id, name in connection.execute(_NAMES)
        if keepings.get(type_id, BUS_WIDE).seconds(otherwise) == math.inf
    )
    return Holders(roles, services, readers, parked_for, list(islice(kept, MOST_NAMED)))


_CURSOR, _ROLE, _SERVICE, _NODE = model.cursor.c, model.role.c, model.service.c, model.node.c
_READER, _RANGE, _STRETCH, _TYPE = model.reader.c, model.reader_range.c, model.reader_stretch.c, model.event_type.c
_HEAD = sa.bindparam("head", type_=sa.BigInteger)
_UNTIL = sa.func.coalesce(_CURSOR.until_position - 1, _HEAD)
_BEHIND = (
    sa.select(_ROLE.login)
    .join(model.cursor, _CURSOR.role_id == _ROLE.id)
    .where(
        _ROLE.detached_at.is_(None),
        _CURSOR.position < _HEAD,
        _CURSOR.position < _UNTIL,
        sa.exists().where(_NODE.service_id == _ROLE.service_id),
    )
    .order_by(_CURSOR.position, _ROLE.login)
)
_WITHOUT_ROLE = (
    sa.select(_SERVICE.name)
    .where(
        _SERVICE.kind == "consumer",
        _SERVICE.removed_at.is_(None),
        sa.exists().where(_NODE.service_id == _SERVICE.id),
        ~sa.exists().where(_ROLE.service_id == _SERVICE.id, _CURSOR.role_id == _ROLE.id),
    )
    .order_by(_SERVICE.name)
)
_UNREAD = (
    sa.select(_SERVICE.name)
    .join(model.reader, _READER.service_id == _SERVICE.id)
    .where(
        _SERVICE.removed_at.is_(None),
        _READER.keeps,
        _READER.detached_at.is_(None),
        sa.exists().where(
            _RANGE.service_id == _READER.service_id,
            _RANGE.completed_at.is_(None),
            _STRETCH.range_id == _RANGE.id,
            _STRETCH.position <= _HEAD,
        ),
    )
    .order_by(_SERVICE.name)
)
_PARKED = (
    sa.select(_ROLE.login)
    .where(
        sa.exists().where(model.delivery.c.role_id == _ROLE.id, model.delivery.c.state == DeliveryState.PARKED.value)
    )
    .order_by(_ROLE.login)
)
_NAMES = sa.select(_TYPE.id, _TYPE.name).where(_TYPE.removed_at.is_(None)).order_by(_TYPE.name)
_QUESTIONS = [each.limit(MOST_NAMED) for each in (_BEHIND, _WITHOUT_ROLE, _UNREAD, _PARKED)]
