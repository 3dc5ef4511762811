"""The facts of an envelope, with those of its deliveries, or of the part of it that is asked about."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import sqlalchemy as sa

from xbus.broker.journal.log.event_states import OWED
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, show_envelope
from xbus.broker.journal.operations.why.deliveries import DeliveryFacts, NotOwed, read_deliveries, read_not_owed
from xbus.broker.journal.operations.why.subjects import (
    EnvelopeEnd,
    EventFacts,
    ItemFacts,
    are_asked,
    read_end,
    read_items,
    read_led_to,
    read_numbered_event,
    read_types,
)
from xbus.states import DeliveryState

ARRIVE_BY_THEMSELVES = frozenset(
    {OWED, DeliveryState.WAITING.value, DeliveryState.RETRY.value, DeliveryState.HELD.value}
)
"""The states of a delivery that the back, and no person, brings to an end."""


@dataclass(frozen=True, slots=True)
class AskedPart:
    """The part of an envelope that is asked about.

    Args:
        role: the login of one role; None for all.
        event: the number of one event, from 1; None for all.
        item: the index of one item of that event, from 0; None for all.
    """

    role: str | None = None
    event: int | None = None
    item: int | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeFacts:
    """The facts of an envelope.

    Args:
        detail: its details.
        end: its end, beside its deliveries.
        part: the part that is asked about.
        is_gone: whether the bus removed its content for good; that of an archived envelope is in its files.
        types: the types of the events that are asked about.
        deliveries: its deliveries, of that part.
        not_owed: why roles are not owed it, where it has no deliveries: the role that is asked about, or all to which
            its graphs lead.
        is_unknown_role: whether nobody has or had the login of that role.
        event: the event that is asked about; None where none is, or the envelope has none of this number.
        items: how roles get the item that is asked about.
    """

    detail: EnvelopeDetail
    end: EnvelopeEnd
    part: AskedPart
    is_gone: bool = False
    types: Sequence[str] = ()
    deliveries: Sequence[DeliveryFacts] = ()
    not_owed: Sequence[NotOwed] = ()
    is_unknown_role: bool = False
    event: EventFacts | None = None
    items: Sequence[ItemFacts] = ()

    @property
    def asks_the_back(self) -> bool:
        """True if only the memory of the back can say what keeps some of the deliveries."""
        return any(delivery.progress.state in ARRIVE_BY_THEMSELVES for delivery in self.deliveries)


def read_envelope_facts(connection: sa.Connection, envelope_id: UUID, part: AskedPart) -> EnvelopeFacts | None:
    """Read the facts of an envelope; None if no envelope has this id."""
    detail = show_envelope(connection, envelope_id)
    if detail is None:
        return None
    end = read_end(connection, envelope_id)
    event = None if part.event is None else read_numbered_event(connection, envelope_id, part.event)
    is_gone = end.pruned_at is not None and detail.archive is None
    if detail.summary.position is None or is_gone or (part.event is not None and event is None):
        return EnvelopeFacts(detail, end, part, is_gone=is_gone, event=event)
    services = None if event is None else event.services
    deliveries = read_deliveries(connection, detail, services, part.role)
    if end.pruned_at is not None:
        # What is gone for good was told above.
        deliveries = [replace(delivery, is_archived=True) for delivery in deliveries]
    if part.item is not None:
        # Of the items that are parked alone only the one counts that is asked about.
        deliveries = [replace(delivery, parked_items=0) for delivery in deliveries]
    asked = are_asked(envelope_id, event)
    types = read_types(connection, asked)
    passed_over: Sequence[str] = ()
    if not deliveries:
        passed_over = read_led_to(connection, asked) if part.role is None else [part.role]
    not_owed = read_not_owed(connection, detail, passed_over, types)
    return EnvelopeFacts(
        detail,
        end,
        part,
        types=types,
        deliveries=deliveries,
        not_owed=not_owed,
        is_unknown_role=part.role is not None and not deliveries and not not_owed,
        event=event,
        items=() if event is None or part.item is None else read_items(connection, event.id, part.item),
    )
