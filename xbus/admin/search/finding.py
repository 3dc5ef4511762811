"""Searches the items of an event type, from the newest back, up to a bound."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from xbus.admin.repair.payload import Payload, mask
from xbus.admin.search.conditions import Fit
from xbus.admin.search.items import PAGE_BYTES, EnvelopeItem, items_of
from xbus.broker.journal.database.connection import Connection, connected
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head, read_segments
from xbus.broker.journal.operations.envelopes.listing import known_type_id
from xbus.broker.journal.operations.envelopes.search import SearchedEvent, read_search_page
from xbus.broker.journal.operations.event_types import read_secret_fields

MOST_ITEMS = 1_000_000
"""Items that one search reads at the most, unless its user wants it otherwise. It reads some 50,000 in a second."""

MOST_BYTES = 1 << 30
"""Bytes of items that one search reads at the most. Few items may be large."""


@dataclass(frozen=True, slots=True)
class Search:
    """The request for a search.

    Args:
        conditions: all of them must fit.
        since: only items of envelopes that were sealed since; None for all.
        below: a position; only items below it. None for all.
        limit: how many items to find.
        most_items: how many to read.
        most_bytes: and how many bytes of them.
        most_events: into how many events to look; None for any number.
        show_secrets: whether the fields that the type calls secret are searched and shown.
    """

    type_name: str
    conditions: Sequence[Fit]
    since: datetime | None = None
    below: int | None = None
    limit: int = 20
    most_items: int = MOST_ITEMS
    most_bytes: int = MOST_BYTES
    most_events: int | None = None
    show_secrets: bool = False


@dataclass(slots=True)
class SearchResult:
    """The result of a search, as far as it has come.

    Args:
        found: the items that fit with the moments of their seals, the newest envelope first.
        read_items: how many items were read.
        read_bytes: and how many bytes of them.
        read_events: into how many events it looked.
        archived: how many events were left out, because only an archive has their items.
        searched_from: all from this position on was searched; None for nothing yet.
        stopped: whether it ended before the beginning of the log or of the time that was asked for.
        is_bounded: whether it ended because it had read as much as it may.
        secret: paths of the fields that are hidden.
    """

    found: list[tuple[EnvelopeItem, datetime]] = field(default_factory=list)
    read_items: int = 0
    read_bytes: int = 0
    read_events: int = 0
    archived: int = 0
    searched_from: int | None = None
    stopped: bool = False
    is_bounded: bool = False
    secret: Set[str] = frozenset()

    @property
    def next_below(self) -> int | None:
        """The position below which a further search goes on; None where it would find the same again."""
        places = [item.position or 0 for item, _ in self.found]
        if self.searched_from is None or not (self.is_bounded or max(places, default=0) >= self.searched_from):
            return None
        return self.searched_from


def search_items(url: str, search: Search, on_progress: Callable[[int, int], object]) -> SearchResult:
    """Search the items of a type; each read is a short transaction of its own.

    Args:
        url: the database.
        on_progress: called behind each page, with the number of positions that were searched, and of all.

    Raises:
        Refused: no event type has this name (``unknown_type``).
    """
    result = SearchResult()
    with connected(url) as connection:
        with connection.begin():
            type_id = known_type_id(connection, search.type_name)
            if not search.show_secrets:
                result.secret = read_secret_fields(connection).get(search.type_name, frozenset())
            above = 0 if search.since is None else position_before(connection, search.since)
            head = read_head(connection)
        top = head + 1 if search.below is None else min(search.below, head + 1)
        below: int | None = top
        while below is not None and not result.stopped:
            with connection.begin():
                page = read_search_page(connection, type_id, below, above)
            for event in page.events:
                if event.position < below:
                    # The envelopes before it were searched whole.
                    result.searched_from, below = (None if below == top else below), event.position
                if not _search_event(connection, search, event, result):
                    break
            else:
                below = page.below
                result.searched_from = below or result.searched_from
                on_progress(top - (below or above + 1), top - above - 1)
    return result


def _search_event(connection: Connection, search: Search, event: SearchedEvent, result: SearchResult) -> bool:
    """Search the items of an event; return whether the search may go on behind it."""
    if result.read_events == search.most_events:
        result.stopped = result.is_bounded = True
        return False
    result.read_events += 1
    if not event.here:
        result.archived += event.archived
        return True
    for index, data in _items(connection, event.event_id):
        result.is_bounded = result.read_items >= search.most_items or result.read_bytes >= search.most_bytes
        result.stopped = result.is_bounded or len(result.found) >= search.limit
        if result.stopped:
            return False
        result.read_items += 1
        result.read_bytes += len(data)
        # Who does not see a field must not find out its value by asking for one after the other.
        value = mask(Payload.of(data).value, result.secret)
        if all(condition.fits(value) for condition in search.conditions):
            place = (event.envelope_id, event.position, event.event_id, event.number, search.type_name, index)
            result.found.append((EnvelopeItem(*place, data, result.secret), event.closed_at))
    return True


def _items(connection: Connection, event_id: UUID) -> Iterator[tuple[int, bytes]]:
    first = 0
    while True:
        with connection.begin():
            segments = read_segments(connection, event_id, first, PAGE_BYTES)
        if not segments:
            return
        yield from items_of(segments, first)
        first = segments[-1].first_index + segments[-1].items
