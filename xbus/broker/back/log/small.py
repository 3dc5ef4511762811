"""Small envelopes: those that are brought whole, in one call; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import headers_map
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import PutGroup
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import texts_of
from xbus.rpc.messages import HeadersMap

SMALL_BYTES = 64 * 1024
"""The items and headers of a small envelope have this many bytes at most. More per call makes others wait longer for
their turn."""

_NAME, _HEADERS = attrgetter("name"), attrgetter("headers")

T = TypeVar("T", bound=tuple[object, ...])

WireBatches: TypeAlias = Sequence[tuple[int, int, bytes, list[list[int]] | None]]
WireEvent: TypeAlias = tuple[str, str, WireBatches] | tuple[str, str, WireBatches, HeadersMap]
WireNote: TypeAlias = tuple[str | None, str | None, str | None, int, float | None, int]
"""The fields of a ``DeliveryNote``."""
BundleEntry: TypeAlias = tuple[str, Sequence[WireEvent]] | tuple[str, Sequence[WireEvent], WireNote]


class GroupPart(NamedTuple):
    """Envelopes of a sealed group that one role gets, as columns.

    Args:
        group: the columns of these envelopes alone.
        positions: theirs in the log, which grow.
    """

    group: PutGroup
    positions: Sequence[int]

    def of_graphs(self, graph_ids: Collection[int]) -> "GroupPart":
        """Give the part of the envelopes that take any of some graphs."""
        return self.chosen([at for at, each in enumerate(self.group.types) if each.graph_id in graph_ids])

    @property
    def size(self) -> int:
        """The bytes of their items and headers."""
        return self.group.size

    @property
    def ordering_keys(self) -> list[str]:
        """The ordering key of each envelope, "" for none."""
        return [head.ordering_key or "" for head in self.group.heads]

    @property
    def ids(self) -> Sequence[bytes]:
        """The id of each envelope, of 16 bytes."""
        return self.group.envelope_ids

    @property
    def is_traced(self) -> bool:
        """Check whether an envelope is traced: none of a group that goes as columns is."""
        return False

    @property
    def goes_alone(self) -> bool:
        """Check whether each envelope goes alone: what workers have had is no column of a group any more."""
        return False

    @property
    def items(self) -> int:
        """The number of items of all envelopes."""
        return sum(self.group.items)

    def on_wire(self, logins: Mapping[int, str | None] | None, *, wants_headers: bool) -> list[BundleEntry]:
        """Write the envelopes as :func:`bundle_on_wire` does; no code of Python runs for most."""
        group = self.group
        items, tags, number = group.items, group.tags, len(group.items)
        ordering_keys, keys, headers = zip(*group.heads, strict=True)
        batches: Iterable[Any] = zip(zip(repeat(0), items, group.data, repeat(None)))
        if 0 in items:
            batches = [batch if has_items else () for has_items, batch in zip(items, batches, strict=True)]
        texts, names = texts_of([*group.event_ids, *group.envelope_ids]), map(_NAME, group.types)
        event_ids, ids = texts[:number], texts[number:]
        if wants_headers and (any(headers) or tags.count(NO_TAGS) < len(tags)):
            events: Iterable[Any] = _with_headers(event_ids, names, batches, tags, headers)
        else:
            events = zip(zip(event_ids, names, batches, strict=True))
        if logins is None:
            return [*zip(ids, events, strict=True)]
        emitters, at = map(logins.__getitem__, group.emitter_ids), repeat(group.at.timestamp())
        notes = zip(emitters, keys, ordering_keys, self.positions, at, repeat(1))
        return [*zip(ids, events, notes, strict=True)]

    def smalls(self) -> "list[SmallEnvelope]":
        """Give the envelopes, each of which is small, as objects."""
        return [small for small in self.objects()[1] if small is not None]

    def objects(self) -> "tuple[list[LogEnvelope], list[SmallEnvelope | None]]":
        """Give the envelopes as objects, and each with its items where it is small."""
        group = self.group
        names = [each.name for each in group.types]
        graphs = [each.graph_id for each in group.types]
        ways = {graph_id: (graph_id,) for graph_id in set(graphs)}
        events = named_tuples(LogEvent, group.event_ids, names, graphs, group.items, repeat(None), group.tags)
        envelopes = list(
            named_tuples(
                LogEnvelope,
                *(group.envelope_ids, self.positions, zip(events), [ways[each] for each in graphs], repeat(None)),
                *(group.heads, group.emitter_ids, repeat(group.at), map(len, group.data)),
            )
        )
        batches = named_tuples(RunBatch, repeat(0), group.items, group.data, repeat(None), repeat(None))
        of_each = [([batch],) if batch.items else ((),) for batch in batches]
        return envelopes, SmallEnvelope.of_columns(envelopes, of_each)

    def cut(self, number: int) -> "tuple[GroupPart, GroupPart]":
        """Give the first envelopes, and the others."""
        return self.chosen(range(number)), self.chosen(range(number, len(self.positions)))

    def chosen(self, indexes: Sequence[int]) -> "GroupPart":
        """Give the part of some of these envelopes, by their indexes among them, which grow.

        It has columns of its own, so that nobody keeps the bytes of others.
        """
        if len(indexes) == len(self.positions):
            return self
        group, start, stop = self.group, indexes[0], indexes[-1] + 1
        columns: Iterable[Any] = (
            *(self.positions, group.emitter_ids, group.envelope_ids, group.event_ids, group.types),
            *(group.items, group.data, group.heads, group.tags),
        )
        if stop - start == len(indexes):
            columns = map(itemgetter(slice(start, stop)), columns)
        else:
            columns = [[*map(column.__getitem__, indexes)] for column in columns]
        positions, emitter_ids, envelope_ids, event_ids, types, items, data, heads, tags = columns
        headers = filter(None, map(_HEADERS, [*heads, *tags]))
        size = sum(map(len, [*data, *headers]))
        found = PutGroup(emitter_ids, group.at, envelope_ids, event_ids, types, items, data, heads, tags, size)
        return GroupPart(found, positions)


class PagePart(NamedTuple):
    """Small envelopes that were read back, or that come otherwise than a group keeps them; see ``GroupPart``.

    Args:
        envelopes: them, in position order.
        positions: theirs.
        size: the bytes of their items and headers.
        is_traced: whether any of them is.
        goes_alone: whether each goes in a run, as workers could not take it together with others.
    """

    envelopes: "Sequence[SmallEnvelope]"
    positions: Sequence[int]
    size: int
    is_traced: bool
    goes_alone: bool = False

    @classmethod
    def of(cls, envelopes: "Sequence[SmallEnvelope]", *, goes_alone: bool = False) -> "PagePart":
        """Make a part of envelopes."""
        positions = [small.envelope.position for small in envelopes]
        headers = [headers for small in envelopes if (headers := small.envelope.head.headers) is not None]
        size, is_traced = sum([small.size for small in envelopes]), tracing.IN_BYTES in b" ".join(headers)
        # No function is called for each of them.
        return cls(envelopes, positions, size, is_traced, goes_alone)

    @property
    def ordering_keys(self) -> list[str]:
        """The ordering key of each envelope, "" for none."""
        return [small.envelope.head.ordering_key or "" for small in self.envelopes]

    @property
    def ids(self) -> Sequence[bytes]:
        """The id of each envelope, of 16 bytes."""
        return [small.envelope.id for small in self.envelopes]

    @property
    def items(self) -> int:
        """The number of items of all envelopes."""
        return sum([event.items for small in self.envelopes for event in small.envelope.events])

    def on_wire(self, logins: Mapping[int, str | None] | None, *, wants_headers: bool) -> list[BundleEntry]:
        """Write the envelopes as :func:`bundle_on_wire` does."""
        return bundle_on_wire(self.envelopes, logins, wants_headers=wants_headers)

    def smalls(self) -> "list[SmallEnvelope]":
        """Give the envelopes."""
        return list(self.envelopes)

    def cut(self, number: int) -> "tuple[PagePart, PagePart]":
        """Give the first envelopes, and the others."""
        return self.chosen(range(number)), self.chosen(range(number, len(self.envelopes)))

    def chosen(self, indexes: Sequence[int]) -> "PagePart":
        """Give the part of some of these envelopes, by their indexes among them, which grow."""
        return PagePart.of([self.envelopes[each] for each in indexes], goes_alone=self.goes_alone)


Part: TypeAlias = GroupPart | PagePart


class SmallEnvelope(NamedTuple):
    """An envelope with all of its items.

    Args:
        envelope: as the log has it.
        batches: for each of its events the items.
        size: how many bytes the items and the headers have.
    """

    envelope: LogEnvelope
    batches: Sequence[Sequence[RunBatch]]
    size: int

    @property
    def envelope_id(self) -> UUID:
        return self.envelope.envelope_id

    @property
    def position(self) -> int:
        return self.envelope.position

    def with_items(self, batches: Sequence[Sequence[RunBatch]]) -> "SmallEnvelope":
        """The same envelope with what a worker made of its items."""
        return SmallEnvelope(self.envelope, batches, sum(batch.size for of_event in batches for batch in of_event))

    @classmethod
    def of_segments(cls, envelope: LogEnvelope, of_events: Sequence[Sequence[Segment]]) -> "SmallEnvelope | None":
        """The envelope with these segments; None where some items are missing, or where it is not small.

        Args:
            of_events: those of each event, in index order.
        """
        size = len(envelope.head.headers or b"")
        for event, found in zip(envelope.events, of_events, strict=True):
            if sum([segment.items for segment in found]) != event.items:
                return None
            size += event.tags.size + sum([len(segment.data) for segment in found])
        if size > SMALL_BYTES:
            return None
        return cls(envelope, [list(join_small(found)) for found in of_events], size)

    @classmethod
    def of_columns(
        cls, envelopes: Sequence[LogEnvelope], batches: Sequence[Sequence[Sequence[RunBatch]]]
    ) -> "list[SmallEnvelope | None]":
        """Give envelopes of one event each with their items; None for each that is not small.

        Args:
            batches: of each envelope, for its event.
        """
        sizes = [
            envelope.size + len(envelope.head.headers or b"")
            if envelope.events[0].tags is NO_TAGS
            else envelope.size + len(envelope.head.headers or b"") + envelope.events[0].tags.size
            for envelope in envelopes
        ]
        small = named_tuples(cls, envelopes, batches, sizes)
        return [each if each.size <= SMALL_BYTES else None for each in small]


def named_tuples(kind: type[T], *columns: Iterable[object]) -> Iterator[T]:
    """Make named tuples of columns; no function of Python is called for each."""
    return map(tuple.__new__, repeat(kind), zip(*columns, strict=False))


def bundle_on_wire(
    bundle: Sequence[SmallEnvelope], logins: Mapping[int, str | None] | None, *, wants_headers: bool
) -> list[BundleEntry]:
    """Write envelopes as ``xbus.take_envelopes`` takes them, with what their recipient wants to be told of them.

    Args:
        logins: of their emitters, for a recipient that wants notes; None for one that wants none.
        wants_headers: whether it wants headers.
    """
    envelopes = [small.envelope for small in bundle]
    texts = texts_of([envelope.id for envelope in envelopes])
    are_single = False not in [len(small.batches) == 1 and len(small.batches[0]) <= 1 for small in bundle]
    make_events = _single_events if are_single else _events
    events = make_events(bundle, wants_headers=wants_headers)
    if logins is None:
        return list(zip(texts, events, strict=True))
    moments = [None if envelope.sealed_at is None else envelope.sealed_at.timestamp() for envelope in envelopes]
    heads = [envelope.head for envelope in envelopes]
    notes = zip(
        [logins[envelope.emitter_id] for envelope in envelopes],
        [head.key for head in heads],
        [head.ordering_key for head in heads],
        [envelope.position for envelope in envelopes],
        moments,
        repeat(1),
        strict=False,
    )
    return list(zip(texts, events, notes, strict=True))


def _with_headers(
    ids: Iterable[str],
    names: Iterable[str],
    batches: Iterable[WireBatches],
    tags: Iterable[EventTags],
    of_envelopes: Iterable[bytes | None],
) -> list[list[WireEvent]]:
    """Write events, one of each envelope, with their headers; no function of Python is called for most."""
    events: list[list[WireEvent]] = []
    for event_id, name, of_event, each, headers in zip(ids, names, batches, tags, of_envelopes, strict=True):
        if each is not NO_TAGS:
            told = headers_map(each, headers)
            events.append([(event_id, name, of_event, told) if told else (event_id, name, of_event)])
        elif headers is not None:
            events.append([(event_id, name, of_event, {"envelope_headers": headers})])
        else:
            events.append([(event_id, name, of_event)])
    return events


def _single_events(bundle: Sequence[SmallEnvelope], *, wants_headers: bool) -> list[list[WireEvent]]:
    """Write the events of envelopes of one event and one batch; no function of Python is called for most."""
    events = [small.envelope.events[0] for small in bundle]
    ids = texts_of([event.id for event in events])
    names = [event.type_name for event in events]
    batches: list[WireBatches] = [[small.batches[0][0][:4]] if small.batches[0] else [] for small in bundle]
    if not wants_headers:
        return [[event] for event in zip(ids, names, batches, strict=True)]
    headers = [small.envelope.head.headers for small in bundle]
    return _with_headers(ids, names, batches, [event.tags for event in events], headers)


def _events(bundle: Sequence[SmallEnvelope], *, wants_headers: bool) -> list[list[WireEvent]]:
    """Write the events of envelopes."""
    written: list[list[WireEvent]] = []
    for small in bundle:
        events: list[WireEvent] = []
        of_envelope = small.envelope.head.headers
        for event, batches in zip(small.envelope.events, small.batches, strict=True):
            found = (str(event.event_id), event.type_name, [batch.on_wire() for batch in batches])
            headers = headers_map(event.tags, of_envelope) if wants_headers else None
            events.append((*found, headers) if headers else found)
            of_envelope = None
        written.append(events)
    return written
