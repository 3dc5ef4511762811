"""Resumes all parked envelopes page by page: the broker writes between two pages."""

from dataclasses import dataclass, field, replace

from xbus.admin.repair.moves import resume
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.parked import find_parked
from xbus.broker.journal.operations.parked_list import (
    Filters,
    ParkedSummary,
    list_parked_items,
    read_parked_page,
    read_parked_roles,
)
from xbus.broker.journal.operations.parked_moves import resume_deliveries
from xbus.errors import Refused
from xbus.ids import Ids

PAGE = 500
"""Envelopes that one transaction resumes."""

MOST_ENTRIES = 100_000
"""The most entries of items parked alone that are resumed at once; each becomes an envelope."""


@dataclass(slots=True)
class Done:
    """The counts of resumed parts, and why some items were not resumed."""

    envelopes: int = 0
    items: int = 0
    refusals: list[Refused] = field(default_factory=list)


def resume_all(url: str, filters: Filters, decision: RepairDecision, ids: Ids) -> Done:
    """Resume all parked parts that the filters select; one page is one transaction.

    Args:
        url: of the database.
        filters: with ``until``, because a resumed envelope may be parked again at once.
    """
    done = Done()
    with reading(url) as connection:
        role_ids = read_parked_roles(connection, filters)
        entries = list(list_parked_items(connection, filters, MOST_ENTRIES))
    for role_id in role_ids:
        done.envelopes += _resume_envelopes(url, role_id, filters, decision)
    for entry in entries:
        try:
            done.items += _resume_items(url, entry, decision, ids)
        except Refused as refusal:
            done.refusals.append(refusal)
    return done


def _resume_envelopes(url: str, role_id: int, filters: Filters, decision: RepairDecision) -> int:
    """Resume those of one role, lowest position first; how many."""
    resumed = after = 0
    while True:
        with writing(url) as connection:
            page = read_parked_page(connection, role_id, filters, after, PAGE)
            resumed += resume_deliveries(connection, role_id, [envelope_id for _, envelope_id in page], decision)
        if len(page) < PAGE:
            return resumed
        after = page[-1][0]


def _resume_items(url: str, entry: ParkedSummary, decision: RepairDecision, ids: Ids) -> int:
    """Resume the items that an entry of the list is about; how many."""
    with writing(url) as connection:
        past, (parked,) = find_parked(connection, entry.envelope_id, entry.role)
        types = {event.event_id: event.type_name for event in past.events}
        items = [item for item in parked.items if item.code == entry.code and types[item.event_id] in entry.types]
        resume(connection, past, replace(parked, delivery=None, items=tuple(items)), decision, ids)
    return len(items)
