"""Decides by the rules of their types which envelopes have been kept for long enough.

An envelope goes as a whole: it stays as long as the type of one of its events wants it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.retention.needed import IDS, Candidate
from xbus.model.base import UNREADABLE

REMEMBERED_KEYS = 10_000
"""Partition keys whose newest events a round remembers. More spare look-ups, and cost memory."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Says when the events of a type may go: one of the three suffices.

    Args:
        until: those that were sealed before; None where no age lets them go.
        upto: those up to this position.
        last_per_key: those whose partition key has so many newer events.
    """

    until: datetime | None = None
    upto: int = 0
    last_per_key: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one round of removal.

    Args:
        others: of types without a rule of their own, and of envelopes without events.
        of_types: by the id of the type.
    """

    others: Rule
    of_types: Mapping[int, Rule] = field(default_factory=dict)
    newest: "NewestOfKeys" = field(default_factory=lambda: NewestOfKeys())

    @property
    def moments(self) -> list[datetime]:
        """The moments before which an age lets something go, in order: of types with rules, else of all others."""
        rules = self.of_types.values() or (self.others,)
        return sorted(rule.until for rule in rules if rule.until is not None)

    def of(self, event_type_id: int) -> Rule:
        """Give the rule of a type."""
        return self.of_types.get(event_type_id, self.others)


class NewestOfKeys:
    """Remembers from which position on the newest events of a partition key lie, for one round.

    Events that come meanwhile only move that position up: what was older stays older.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[int, str], int] = {}

    def first_kept(self, event_type_id: int, key: str) -> int:
        """Give the position from which on events of a key stay; 0 where it has too few."""
        return self._first.get((event_type_id, key), 0)

    def look_up(self, connection: sa.Connection, event_type_id: int, last: int, keys: Collection[str]) -> None:
        """Read it for those keys that are not known yet."""
        if len(self._first) > REMEMBERED_KEYS:
            self._first.clear()
        unknown = [key for key in keys if (event_type_id, key) not in self._first]
        if unknown:
            of_keys = {"of_type": event_type_id, "last": last, "keys": unknown}
            found = dict(connection.execute(_FIRST_KEPT, of_keys).all())
            self._first.update({(event_type_id, key): found.get(key, 0) for key in unknown})


def kept_long_enough(connection: sa.Connection, rules: Rules, found: Sequence[Candidate]) -> list[Candidate]:
    """Select those of some candidates of which no event has to stay."""
    if not rules.of_types:
        return [candidate for candidate in found if candidate.is_begun or _is_past(rules.others, candidate)]
    events: dict[UUID, list[tuple[int, str | None]]] = {}
    ids = {"ids": [candidate.envelope_id for candidate in found]}
    for envelope_id, event_type_id, key in connection.execute(_EVENTS, ids):
        events.setdefault(envelope_id, []).append((event_type_id, key))
    for (event_type_id, last), keys in _keys(rules, events.values()).items():
        rules.newest.look_up(connection, event_type_id, last, keys)

    def may_go(candidate: Candidate) -> bool:
        if candidate.is_begun:
            return True
        of_envelope = events.get(candidate.envelope_id)
        if not of_envelope:
            return _is_past(rules.others, candidate)
        return all(
            _is_past(rules.of(event_type_id), candidate)
            or (key is not None and candidate.position < rules.newest.first_kept(event_type_id, key))
            for event_type_id, key in of_envelope
        )

    return [candidate for candidate in found if may_go(candidate)]


def _is_past(rule: Rule, candidate: Candidate) -> bool:
    # A moment that can't be read is not old.
    return candidate.position <= rule.upto or (rule.until is not None and UNREADABLE < candidate.closed_at < rule.until)


def _keys(rules: Rules, events: Collection[Sequence[tuple[int, str | None]]]) -> dict[tuple[int, int], set[str]]:
    """Collect the partition keys of those types that keep only the newest of a key, with how many they keep."""
    keys: dict[tuple[int, int], set[str]] = {}
    for event_type_id, key in chain.from_iterable(events):
        last = rules.of(event_type_id).last_per_key
        if key is not None and last is not None:
            keys.setdefault((event_type_id, last), set()).add(key)
    return keys


_EVENT, _ENVELOPE = model.event.c, model.envelope.c
_EVENTS = sa.select(_EVENT.envelope_id, _EVENT.event_type_id, _EVENT.partition_key).where(_EVENT.envelope_id.in_(IDS))
_KEYS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
_RANKED = (
    sa.select(
        _EVENT.partition_key.label("key"),
        _ENVELOPE.position,
        sa.func.row_number().over(partition_by=_EVENT.partition_key, order_by=_ENVELOPE.position.desc()).label("rank"),
    )
    .join(model.envelope, _ENVELOPE.id == _EVENT.envelope_id)
    .where(
        _EVENT.event_type_id == sa.bindparam("of_type"),
        _EVENT.partition_key.in_(_KEYS),
        _ENVELOPE.position.is_not(None),
    )
    .subquery()
)
_FIRST_KEPT = sa.select(_RANKED.c.key, _RANKED.c.position).where(_RANKED.c.rank == sa.bindparam("last"))
