"""Keeps the lists of events that were read last, so that those who stand near each other read them once."""

import threading
from collections import OrderedDict

import sqlalchemy as sa

from xbus.broker.journal.log.contents import block_of
from xbus.broker.journal.log.slices.listing import PAGE_EVENTS, ListPage, read_list_page
from xbus.broker.journal.log.slices.values import Place

LISTS_BYTES = 64 * 1024 * 1024
"""Memory that the lists may take. More spares reads to ranges that are far apart."""

LISTED_EVENT_BYTES = 1024
"""Memory that an event in a list takes beside its headers, about."""

PAGE_BYTES = 1024
"""Memory that a list takes beside its events, about."""


class EventLists:
    """The lists that were read last; threads may share it.

    Args:
        max_bytes: the lists that were not used for longest go when all take more than this.
    """

    def __init__(self, max_bytes: int = LISTS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: OrderedDict[tuple[frozenset[int], int], list[ListPage]] = OrderedDict()
        """The lists by types and by the block in which they begin, the last used one at the end."""
        self._reading = threading.Lock()

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def page(self, connection: sa.Connection, types: frozenset[int], place: Place) -> ListPage:
        """Find or read a list that covers a place; it may begin before it."""
        # Whoever wants the same list waits here while it is read, and finds it.
        with self._reading:
            found = self._find(types, place)
            if found is None:
                found = read_list_page(connection, types, place)
                if found.first < found.to:
                    self._keep(types, found)
            return found

    def _find(self, types: frozenset[int], place: Place) -> ListPage | None:
        block = types, block_of(place.position)
        for page in self._blocks.get(block, ()):
            if page.first <= place < page.to:
                self._blocks.move_to_end(block)
                return page
        return None

    def _keep(self, types: frozenset[int], page: ListPage) -> None:
        block = types, block_of(page.first.position)
        pages = self._blocks.setdefault(block, [])
        self._blocks.move_to_end(block)
        self._bytes += _memory(page)
        if pages and pages[-1].to == page.first and len(pages[-1].events) + len(page.events) <= PAGE_EVENTS:
            # The head of the log grows by a few events at a time.
            last = pages.pop()
            page = ListPage(last.first, page.to, (*last.events, *page.events))
        pages.append(page)
        while self._bytes > self._max_bytes and self._blocks:
            _, oldest = self._blocks.popitem(last=False)
            self._bytes -= sum(map(_memory, oldest))


def _memory(page: ListPage) -> int:
    return PAGE_BYTES + sum([LISTED_EVENT_BYTES + event.facts.size for event in page.events])
