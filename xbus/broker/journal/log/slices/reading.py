"""Reads a slice of the log: lists events page by page, and reads the items that are wanted of them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import sqlalchemy as sa

from xbus.broker.journal.log.slices.items import ItemSource, ItemSpan, SliceItems
from xbus.broker.journal.log.slices.listing import ListedEvent, ListPage, read_list_page
from xbus.broker.journal.log.slices.stored import StoredItems
from xbus.broker.journal.log.slices.values import EventHead, Place, Slice, SliceBounds, Stretch

MOST_PAGES = 16
"""Lists of events that are looked through for one slice at the most, so that no read takes long."""

ListSource: TypeAlias = Callable[[sa.Connection, frozenset[int], Place], ListPage]


Pages: TypeAlias = Callable[[frozenset[int], Place], ListPage]
"""Gives the list of events of some types that covers a place."""


def read_slice(
    connection: sa.Connection,
    types: frozenset[int],
    stretches: Sequence[Stretch],
    bounds: SliceBounds,
    lists: ListSource = read_list_page,
    most_pages: int = MOST_PAGES,
) -> Slice:
    """Read the next items of some event types from the database, see :func:`cut_slice`.

    Args:
        lists: gives lists of events.
    """
    return cut_slice(partial(lists, connection), StoredItems(connection), types, stretches, bounds, most_pages)


def read_heads(
    connection: sa.Connection, types: frozenset[int], stretches: Sequence[Stretch], until: Place
) -> list[EventHead]:
    """Read which events of some types have items in stretches, up to a place, without the items.

    The list ends before what only an archive has.
    """
    place = min(stretch.position for stretch in stretches)
    found: list[EventHead] = []
    while place < until:
        page = read_list_page(connection, types, place)
        found += [span.event.facts for span in _wanted(page.events_from(place), stretches)]
        if page.to == place:
            break
        place = page.to
    return found


def cut_slice(
    pages: Pages,
    source: ItemSource,
    types: frozenset[int],
    stretches: Sequence[Stretch],
    bounds: SliceBounds,
    most_pages: int = MOST_PAGES,
) -> Slice:
    """Give the next items of some event types, in the order of the log.

    Args:
        pages: give lists of events.
        source: has the items of these.
        types: the ids of the event types.
        stretches: which hashes, and from which place on each; they don't overlap. Either all have ``until`` or none.
        bounds: the most that is read; of no account for stretches with ``until``, which are read whole.
        most_pages: how many lists are looked through at the most.

    Returns:
        The found events. There may be none though the log goes on: to look for more, read on at ``to``.

    Raises:
        DamagedItems: the next items are damaged, or some of those between a place and ``until``.
        JournalError: the log misses items that it should have.
        ValueError: some stretches have ``until`` and others have not.
    """
    ends = [stretch.until for stretch in stretches if stretch.until is not None]
    if ends and len(ends) < len(stretches):
        raise ValueError("a slice is either read again, or read on: give all stretches until, or none")
    place = min(stretch.position for stretch in stretches)
    until = max(ends, default=None)
    items = SliceItems(source, None if ends else bounds)
    looked = 0
    while (until is None and looked < most_pages) or (until is not None and place < until):
        page = pages(types, place)
        items.read(_wanted(page.events_from(place), stretches))
        if items.stopped_at is not None:
            return Slice(items.stopped_at, tuple(items.events))
        if page.archived:
            return Slice(page.to, tuple(items.events), page.archived)
        if page.to == place:
            return Slice(place if until is None else until, tuple(items.events), ends_log=until is None)
        place = page.to
        looked += 1
    return Slice(place if until is None else until, tuple(items.events))


def _wanted(events: Sequence[ListedEvent], stretches: Sequence[Stretch]) -> Iterator[ItemSpan]:
    """Find the items that stretches want."""
    whole = next((each for each in stretches if each.is_whole_ring), None)
    for event in events:
        stretch = whole or next((each for each in stretches if event.hash in each), None)
        if stretch is not None and (span := _span(event, stretch)) is not None:
            yield span


def _span(event: ListedEvent, stretch: Stretch) -> ItemSpan | None:
    """Find the items of an event between the place of a stretch and its end."""
    facts, begin, until = event.facts, stretch.position, stretch.until
    here = facts.position, facts.event
    if until is None and begin < here:
        return ItemSpan(event, 0, event.items)
    first = begin.item if begin[:2] == here else 0
    end = event.items
    if until is not None and until[:2] == here:
        end = min(end, until.item)
        if not end:
            return None
    if begin[:2] > here or (until is not None and until[:2] < here):
        return None
    return ItemSpan(event, first, end) if first < end or first == end == 0 else None
