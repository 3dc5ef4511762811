"""Short forms of ids for people: prefixes that only one envelope has."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.operations.envelopes.details import envelope_unknown
from xbus.errors import Refused

FEWEST_CHARACTERS = 8
"""Characters of a short id. Fewer save little room, and more ids would soon begin with them."""

MOST_CANDIDATES = 5
DIGITS = 32


def resolve_envelope(connection: sa.Connection, digits: str) -> UUID:
    """Find the envelope whose id begins with some digits.

    Args:
        digits: hexadecimal, 1 to 32 of them; all 32 are an id, whether an envelope has it or not.

    Raises:
        Refused: none begins so (``envelope_unknown``), or several do (``ambiguous_id``).
    """
    if len(digits) == DIGITS:
        return UUID(digits)
    envelope = model.envelope.c
    low, high = UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f"))
    statement = sa.select(envelope.id).where(envelope.id.between(low, high)).order_by(envelope.id)
    found: Sequence[UUID] = connection.execute(statement.limit(MOST_CANDIDATES + 1)).scalars().all()
    if not found:
        raise envelope_unknown(digits)
    if len(found) > 1:
        named = ", ".join(map(str, found[:MOST_CANDIDATES])) + (", ..." if len(found) > MOST_CANDIDATES else "")
        raise Refused(
            f"the ids of several envelopes begin with {digits}",
            f"give more digits of one: {named}",
            code="ambiguous_id",
        )
    (envelope_id,) = found
    return envelope_id


def shorten(connection: sa.Connection, envelope_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Give the shortest prefix of each id that no other envelope's id has, :data:`FEWEST_CHARACTERS` at least."""
    return {envelope_id: _shorten(connection, envelope_id) for envelope_id in set(envelope_ids)}


def _shorten(connection: sa.Connection, envelope_id: UUID) -> str:
    text = str(envelope_id)
    shared = max((_shared(text, str(other)) for other in _neighbours(connection, envelope_id)), default=0)
    length = max(FEWEST_CHARACTERS, shared + 1)
    return text[:length]


def _neighbours(connection: sa.Connection, envelope_id: UUID) -> Iterable[UUID]:
    """Find the ids before and behind one: no other shares more digits with it."""
    column = model.envelope.c.id
    before = sa.select(column).where(column < envelope_id).order_by(column.desc()).limit(1)
    behind = sa.select(column).where(column > envelope_id).order_by(column).limit(1)
    return [*connection.execute(before).scalars(), *connection.execute(behind).scalars()]


def _shared(one: str, other: str) -> int:
    return next((place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right), len(one))
