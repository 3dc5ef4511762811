"""All that is parked, resumed page by page: the broker writes between two of them."""

from dataclasses import dataclass, field, replace

from xbus.admin.repair.moves import resume
from xbus.broker.journal.connection import writing
from xbus.broker.journal.parked import Parked, find_parked
from xbus.broker.journal.parked_list import Filters, ParkedSummary, list_parked_envelopes, list_parked_items
from xbus.broker.journal.parked_moves import Decision, resume_delivery
from xbus.broker.journal.repeats import Past
from xbus.errors import Refused
from xbus.ids import Ids

PAGE = 200


@dataclass(slots=True)
class Done:
    """How much was resumed, and why some items were not."""

    envelopes: int = 0
    items: int = 0
    refusals: list[Refused] = field(default_factory=list)


def resume_all(url: str, filters: Filters, decision: Decision, ids: Ids) -> Done:
    """Have all come again that is parked and that filters let pass; a page at a time is resumed or not.

    Args:
        url: of the database.
        filters: with ``until``, as what is resumed may be parked again at once.
    """
    done = Done()
    while _resume_envelopes(url, filters, decision, done):
        pass
    while _resume_items(url, filters, decision, ids, done):
        pass
    return done


def _resume_envelopes(url: str, filters: Filters, decision: Decision, done: Done) -> bool:
    with writing(url) as connection:
        page = list(list_parked_envelopes(connection, filters, PAGE))
        for summary in page:
            resume_delivery(connection, summary.role_id, summary.envelope_id, decision)
    done.envelopes += len(page)
    return bool(page)


def _resume_items(url: str, filters: Filters, decision: Decision, ids: Ids, done: Done) -> bool:
    """Resume one entry of the list, as each becomes an envelope; those that can't be resumed stay at its head."""
    refused = len(done.refusals)
    try:
        with writing(url) as connection:
            listed = list(list_parked_items(connection, filters, refused + 1))
            if len(listed) <= refused:
                return False
            past, (parked,) = find_parked(connection, listed[-1].envelope_id, listed[-1].role)
            entry = _entry(past, parked, listed[-1])
            resume(connection, past, entry, decision, ids)
    except Refused as refusal:
        done.refusals.append(refusal)
    else:
        done.items += len(entry.items)
    return True


def _entry(past: Past, parked: Parked, listed: ParkedSummary) -> Parked:
    """The items that an entry of the list is about."""
    types = {event.event_id: event.type_name for event in past.events}
    items = [item for item in parked.items if item.code == listed.code and types[item.event_id] in listed.types]
    return replace(parked, delivery=None, items=tuple(items))
