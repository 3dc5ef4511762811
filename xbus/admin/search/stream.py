"""Reads the items of a type from a place on, in the order of the log, then newer ones."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from xbus.admin.repair.payload import Payload, mask
from xbus.admin.search.conditions import Fit
from xbus.admin.search.items import EnvelopeItem
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.log.slices import (
    LAST_HASH,
    Place,
    Slice,
    SliceBounds,
    Start,
    Stretch,
    key_hash,
    read_list_page,
    read_slice,
    read_start,
)
from xbus.broker.journal.operations.envelopes.listing import known_type_id
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.rpc.codec import unpack_items

PAGE = SliceBounds(items=5_000, bytes=1 << 20)
"""Items that are read at once. More need more memory, and fewer take more statements."""


@dataclass(frozen=True, slots=True)
class StreamedItem:
    """An item as readers get it, with its place in the log."""

    place: Place
    sealed_at: datetime
    item: EnvelopeItem


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The items that a person wants to read.

    Args:
        start: where to begin.
        key: a partition key, or the ordering key of events without one; None for all.
        conditions: all of them must fit.
        show_secrets: whether the fields that the type calls secret are shown, and compared.
    """

    type_name: str
    start: Start
    key: str | None
    conditions: Sequence[Fit]
    show_secrets: bool = False


_LISTS = partial(read_list_page, passes_archived=True)
"""A person looks at what is there: nothing is put back for that."""


def read_stream(url: str, wanted: StreamRequest, wait: Callable[[], bool]) -> Iterator[StreamedItem]:
    """Read the items of a type, as readers get them: corrected, where a person has corrected them.

    Args:
        url: the database.
        wait: called at the end of the log; it waits a moment, and says whether to look again.

    Raises:
        Refused: no event type has this name (``unknown_type``).
        BadPlace: the log ends before the place at which to begin (``place_beyond_end``).
    """
    first, last = (0, LAST_HASH) if wanted.key is None else (key_hash(wanted.key),) * 2
    with connected(url) as connection:
        with connection.begin():
            types = frozenset([known_type_id(connection, wanted.type_name)])
            hidden = {} if wanted.show_secrets else read_secret_fields(connection)
            place = read_start(connection, wanted.start)
        secret = hidden.get(wanted.type_name, frozenset())
        while True:
            with connection.begin():
                found = read_slice(connection, types, [Stretch(first, last, place)], PAGE, _LISTS)
            for streamed in _items(found, secret):
                # Who does not see a field must not find out its value by asking for one after the other.
                value = mask(Payload.of(streamed.item.data).value, secret)
                if all(condition.fits(value) for condition in wanted.conditions):
                    yield streamed
            if found.to == place and not wait():
                return
            place = found.to


def _items(found: Slice, secret: Set[str]) -> Iterator[StreamedItem]:
    for event in found.events:
        facts = event.facts
        about = (UUID(facts.envelope_id), facts.position, UUID(facts.event_id), facts.event + 1, facts.type_name)
        for index, data in enumerate(unpack_items(event.data, event.items), event.first_index):
            place = facts.place._replace(item=index)
            yield StreamedItem(place, facts.sealed_at, EnvelopeItem(*about, index, data, secret))
