"""Small envelopes: those that are brought whole, in one call; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import headers_map
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import PutGroup, SealedGroup
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import texts_of
from xbus.rpc.messages import HeadersMap

SMALL_BYTES = 64 * 1024
"""The items and headers of a small envelope have this many bytes at most. More per call makes others wait longer for
their turn."""

T = TypeVar("T", bound=tuple[object, ...])
Value = TypeVar("Value")

WireBatches: TypeAlias = list[tuple[int, int, bytes, list[list[int]] | None]]
WireEvent: TypeAlias = tuple[str, str, WireBatches] | tuple[str, str, WireBatches, HeadersMap]
WireNote: TypeAlias = tuple[str | None, str | None, str | None, int, float | None, int]
"""The fields of a ``DeliveryNote``."""
BundleEntry: TypeAlias = tuple[str, list[WireEvent]] | tuple[str, list[WireEvent], WireNote]


class GroupPart(NamedTuple):
    """The envelopes of a sealed group that one role gets.

    Args:
        places: theirs in the group; a range where all between the first and the last belong to the part.
        positions: theirs in the log.
        size: the bytes of their items and headers.
    """

    sealed: SealedGroup
    places: Sequence[int]
    positions: Sequence[int]
    size: int

    @classmethod
    def at(cls, sealed: SealedGroup, places: Sequence[int]) -> "GroupPart":
        """Give the part of the envelopes at some places of a group, which grow."""
        first, start, stop = sealed.first, places[0], places[-1] + 1
        if stop - start == len(places):
            places = range(start, stop)
            return cls(sealed, places, range(first + start, first + stop), _size(sealed, places))
        return cls(sealed, places, [first + place for place in places], _size(sealed, places))

    @classmethod
    def of_graphs(cls, sealed: SealedGroup, graph_ids: Collection[int]) -> "GroupPart":
        """Give the part of the envelopes that take any of some graphs."""
        places = [place for place, each in enumerate(sealed.group.types) if each.graph_id in graph_ids]
        return cls.at(sealed, places).freed()

    def group(self) -> PutGroup:
        """Give the columns of these envelopes alone."""
        group = self.sealed.group
        return group if len(self.places) == len(self.sealed.hashes) else group.at_places(self.places)

    def column(self, values: Sequence[Value]) -> Sequence[Value]:
        """Give the values of these envelopes out of a column of the group."""
        if isinstance(self.places, range):
            return values[self.places.start : self.places.stop]
        return [values[place] for place in self.places]

    @property
    def type_names(self) -> set[str]:
        """The names of the types of their events."""
        return {each.name for each in set(self.column(self.sealed.group.types))}

    @property
    def ordering_keys(self) -> list[str]:
        """The ordering key of each envelope, "" for none."""
        return [head.ordering_key or "" for head in self.column(self.sealed.group.heads)]

    @property
    def ids(self) -> Sequence[bytes]:
        """The id of each envelope, of 16 bytes."""
        ids = self.sealed.group.envelope_ids
        return ids if len(self.positions) == len(ids) else self.column(ids)

    @property
    def is_traced(self) -> bool:
        """Check whether an envelope is traced: none of a group that goes as columns is."""
        return False

    @property
    def items(self) -> int:
        """The number of items of all envelopes."""
        return sum(map(self.sealed.group.items.__getitem__, self.places))

    def smalls(self) -> "list[SmallEnvelope]":
        """Give the envelopes, each of which is small, as objects."""
        return [small for small in self.objects()[1] if small is not None]

    def objects(self) -> "tuple[list[LogEnvelope], list[SmallEnvelope | None]]":
        """Give the envelopes as objects, and each with its items where it is small."""
        group, column = self.sealed.group, self.column
        types, items, data = column(group.types), column(group.items), column(group.data)
        names = [each.name for each in types]
        graphs = [each.graph_id for each in types]
        ways = {graph_id: (graph_id,) for graph_id in set(graphs)}
        events = named_tuples(LogEvent, column(group.event_ids), names, graphs, items, repeat(None), column(group.tags))
        envelopes = list(
            named_tuples(
                LogEnvelope,
                *(column(group.envelope_ids), self.positions, zip(events), [ways[each] for each in graphs]),
                *(repeat(None), column(group.heads), column(group.emitter_ids), repeat(group.at), map(len, data)),
            )
        )
        batches = named_tuples(RunBatch, repeat(0), items, data, repeat(None), repeat(None))
        of_each = [([batch],) if batch.items else ((),) for batch in batches]
        return envelopes, SmallEnvelope.of_columns(envelopes, of_each)

    def cut(self, number: int) -> "tuple[GroupPart, GroupPart]":
        """Give the first envelopes, and the others."""
        return self.chosen(range(number)), self.chosen(range(number, len(self.places))).freed()

    def chosen(self, indexes: Sequence[int]) -> "GroupPart":
        """Give the part of some of these envelopes, by their indexes among them, which grow."""
        start, stop = indexes[0], indexes[-1] + 1
        if stop - start == len(indexes):
            places, positions = self.places[start:stop], self.positions[start:stop]
        else:
            places, positions = [self.places[each] for each in indexes], [self.positions[each] for each in indexes]
        return GroupPart(self.sealed, places, positions, _size(self.sealed, places))

    def freed(self) -> "GroupPart":
        """Give the part with columns of its own once most bytes of its group belong to others: it keeps them no longer.

        To copy the columns at each step costs more time; a group is kept with at most twice the bytes that wait.
        """
        if 2 * self.size >= self.sealed.group.size:
            return self
        first, last, hashes = self.positions[0], self.positions[-1], self.column(self.sealed.hashes)
        return GroupPart(SealedGroup(first, last, self.group(), hashes), range(len(hashes)), self.positions, self.size)


def _size(sealed: SealedGroup, places: Sequence[int]) -> int:
    """Count the bytes of the items and headers of the envelopes at some places of a group."""
    group = sealed.group
    if len(places) == len(sealed.hashes):
        return group.size
    heads = [head.headers for head in map(group.heads.__getitem__, places) if head.headers is not None]
    tags = [each.size for each in map(group.tags.__getitem__, places) if each is not NO_TAGS]
    return sum(map(len, map(group.data.__getitem__, places))) + sum(map(len, heads)) + sum(tags)


class PagePart(NamedTuple):
    """Small envelopes that were read back, or that come otherwise than a group keeps them; see ``GroupPart``.

    Args:
        envelopes: them, in position order.
        positions: theirs.
        size: the bytes of their items and headers.
        is_traced: whether any of them is.
    """

    envelopes: "Sequence[SmallEnvelope]"
    positions: Sequence[int]
    size: int
    is_traced: bool

    @classmethod
    def of(cls, envelopes: "Sequence[SmallEnvelope]") -> "PagePart":
        """Make a part of envelopes."""
        positions = [small.envelope.position for small in envelopes]
        headers = [headers for small in envelopes if (headers := small.envelope.head.headers) is not None]
        # No function is called for each of them.
        return cls(
            envelopes, positions, sum([small.size for small in envelopes]), tracing.IN_BYTES in b" ".join(headers)
        )

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

    def smalls(self) -> "list[SmallEnvelope]":
        """Give the envelopes."""
        return list(self.envelopes)

    def cut(self, number: int) -> "tuple[PagePart, PagePart]":
        """Give the first envelopes, and the others."""
        return PagePart.of(self.envelopes[:number]), PagePart.of(self.envelopes[number:])

    def chosen(self, indexes: Sequence[int]) -> "PagePart":
        """Give the part of some of these envelopes, by their indexes among them, which grow."""
        return PagePart.of([self.envelopes[each] for each in indexes])

    def freed(self) -> "PagePart":
        """Give the part as it is: it keeps nothing else."""
        return self


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


def parts_on_wire(
    parts: Sequence[Part], logins: Mapping[int, str | None] | None, *, wants_headers: bool
) -> list[BundleEntry]:
    """Write parts as :func:`bundle_on_wire` writes envelopes.

    Args:
        logins: of their emitters, for a recipient that wants notes; None for one that wants none.
    """
    found: list[BundleEntry] = []
    for part in parts:
        if isinstance(part, PagePart):
            found += bundle_on_wire(part.envelopes, logins, wants_headers=wants_headers)
            continue
        group = part.sealed.group
        at = group.at.timestamp()
        whole: Sequence[Sequence[Any]] = (
            group.envelope_ids,
            group.event_ids,
            group.types,
            group.items,
            group.data,
            group.heads,
            group.tags,
            group.emitter_ids,
        )
        columns: list[Sequence[Any]] = [*whole]
        if len(part.positions) < len(part.sealed.hashes):
            columns = [*map(part.column, whole)]
        columns = [texts_of(columns[0]), texts_of(columns[1]), *columns[2:], part.positions]
        # No function of Python is called for most of them.
        for envelope_id, event_id, kind, items, data, head, tags, emitter_id, position in zip(*columns, strict=True):
            event: Any = (event_id, kind.name, [(0, items, data, None)] if items else [])
            if wants_headers and (head.headers is not None or tags is not NO_TAGS):
                told = {"envelope_headers": head.headers} if tags is NO_TAGS else headers_map(tags, head.headers)
                event = (*event, told) if told else event
            if logins is None:
                found.append((envelope_id, [event]))
            else:
                note = (logins[emitter_id], head.key, head.ordering_key, position, at, 1)
                found.append((envelope_id, [event], note))
    return found


def _with_headers(
    ids: Sequence[str],
    names: Sequence[str],
    batches: Sequence[WireBatches],
    tags: Sequence[EventTags],
    of_envelopes: Sequence[bytes | None],
) -> list[list[WireEvent]]:
    """Write events, one of each envelope, with their headers; no function of Python is called for most."""
    told: list[HeadersMap] = [
        headers_map(each, headers) if each is not NO_TAGS else {} if headers is None else {"envelope_headers": headers}
        for each, headers in zip(tags, of_envelopes, strict=True)
    ]
    return [
        [(event_id, name, of_event, headers)] if headers else [(event_id, name, of_event)]
        for event_id, name, of_event, headers in zip(ids, names, batches, told, strict=True)
    ]


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
