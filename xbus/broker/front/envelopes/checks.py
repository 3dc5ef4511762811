"""Checks each call of an emitter: its rights and limits, and the form and size of what it sends."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from xbus.broker.configuration import Configuration
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.writes import PAUSED, GroupType, PauseEntry, PutEvent, PutGroup, SendingLimits
from xbus.clock import Clock
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import Failed, ProtocolError, Refused
from xbus.headers import NO_TAGS, EventTags, check_packed, check_partition_key
from xbus.ids import COMPUTED_VERSION, keyed_ids
from xbus.rpc.codec import SHORT_BIN, Value, largest_item
from xbus.rpc.messages import EnvelopeOptionsMap, EventOptionsMap

NO_ID = UUID(int=0)
"""Stands for the envelope in errors that nobody sees: what is wrong with one of a group is told when it goes alone."""

SLOW_DOWN = "slow_down"

ENVELOPE_SECONDS = 1.0
"""Seconds after which an emitter may ask again whether one of its envelopes has ended. Fewer cost more refusals."""

LEAST_SECONDS = 0.02
"""The least seconds to wait, and those for calls in flight, which are answered soon. Fewer cost more refusals."""

BURST_SECONDS = 1.0
"""A bucket holds what may come in so many seconds. More let an emitter that was silent send more at once."""

LONGEST = {"ordering_key": 255, "key": 1024}
"""How many characters each option that is a text may have."""


@dataclass(frozen=True, slots=True)
class EnvelopeLimits:
    """The largest sizes, in bytes, items and events."""

    item_bytes: int
    batch_bytes: int
    envelope_items: int
    envelope_bytes: int
    envelope_events: int


class NewEvent(NamedTuple):
    """An event of an envelope that comes in one call; ``data`` as in ``model.segment``."""

    event_id: UUID
    type_name: str
    items: int
    data: bytes
    tags: EventTags = NO_TAGS


ID_BYTES = 16

_Columns: TypeAlias = tuple[list[bytes], list[bytes], list[GroupType], list[int], list[bytes]]
"""The ids of envelopes, the ids, types and numbers of items of their events, and the data of these."""


class Checks:
    """Lets calls pass, or refuses them.

    Args:
        configuration: says which emitter may send which event types, and how much.
        limits: how large things may be.
        clock: says whether a pause is over, and measures how fast emitters send.

    Attributes:
        throttle: holds emitters to limits of their own.
    """

    def __init__(self, configuration: Configuration, limits: EnvelopeLimits, clock: Clock) -> None:
        self._configuration = configuration
        self._clock = clock
        self._limits = limits
        self._passing_bytes = min(limits.item_bytes, limits.batch_bytes, limits.envelope_bytes)
        """An envelope of one event passes up to this size whatever it consists of."""
        self._allowed: dict[tuple[int, str], GroupType] = {}
        """The types that emitters may send in groups, without any pause, as far as they were asked for."""
        configuration.on_change(self._allowed.clear)
        self.throttle = Throttle(configuration, clock.monotonic)

    def limits(self, emitter_id: int) -> EnvelopeLimits:
        """Give the limits of an emitter's envelopes."""
        own = self.throttle.limits(emitter_id)
        if own is None or own.envelope_events is None or own.envelope_events >= self._limits.envelope_events:
            return self._limits
        return replace(self._limits, envelope_events=own.envelope_events)

    def new_envelope(self, emitter_id: int) -> None:
        """Let an emitter begin an envelope.

        Raises:
            Failed: paused.
        """
        emitter = self._configuration.catalog.emitters.get(emitter_id)
        if emitter is not None:
            self._check_pause(emitter.pause)

    def _check_pause(self, pause: PauseEntry | None) -> None:
        if pause is not None and not pause.is_over(self._clock.now()):
            next_step = f"{pause.resume_command} ends the pause; repeat the call then"
            raise Failed(f"the {pause.told}", next_step, code=PAUSED)

    def event_type(self, emitter_id: int, type_name: str) -> EventType:
        """An event type that an emitter may send.

        Raises:
            Refused: unknown_type, type_not_allowed.
            Failed: paused.
        """
        catalog = self._configuration.catalog
        event_type = catalog.event_types.get(type_name)
        emitter = catalog.emitters.get(emitter_id)
        if event_type is None and (renamed := catalog.event_type(type_name)) is not None:
            raise Refused(
                f'event type "{type_name}" is called "{renamed.name}" now',
                "send its events under that name",
                code="unknown_type",
            )
        if event_type is None:
            raise Refused(
                f'there is no event type "{type_name}"', "see xbus export for those there are", code="unknown_type"
            )
        if emitter is None or not (type_name in emitter.event_types or event_type.publisher_id == emitter_id):
            raise Refused(
                f'the emitter\'s profile does not allow event type "{type_name}"',
                "add the type to the profile with xbus apply",
                code="type_not_allowed",
            )
        self._check_pause(event_type.pause)
        return event_type

    def allows(self, emitter_id: int, type_name: str) -> bool:
        """Check whether an emitter's profile has an event type, by its present name or a former one."""
        catalog = self._configuration.catalog
        event_type, emitter = catalog.event_type(type_name), catalog.emitters.get(emitter_id)
        if event_type is None or emitter is None:
            return False
        return event_type.name in emitter.event_types or event_type.publisher_id == emitter_id

    def wants_reply(self, type_name: str) -> bool:
        """Check whether emitters of an event type wait for an immediate reply."""
        event_type = self._configuration.catalog.event_type(type_name)
        return event_type is not None and event_type.immediate_reply

    def is_called_so(self, kind: GroupType) -> bool:
        """Check whether an event type still has the name that it had."""
        event_type = self._configuration.catalog.event_types.get(kind.name)
        return event_type is not None and event_type.id == kind.id

    def is_compressed(self, type_name: str) -> bool:
        """Check whether the journal compresses the items of an event type."""
        event_type = self._configuration.catalog.event_type(type_name)
        return event_type is not None and event_type.compress

    def item_size(self, size: int) -> None:
        """Let an item of ``size`` bytes pass.

        Raises:
            Refused: item_too_large.
        """
        if size > self._limits.item_bytes:
            raise Refused(
                f"an item of {size} bytes is over the limit of {self._limits.item_bytes}",
                "send smaller items, or raise max_item_bytes in the broker's configuration",
                code="item_too_large",
            )

    def batch(self, items: int, data: bytes) -> None:
        """Let a batch pass; ``data`` as in ``model.segment``.

        Raises:
            Refused: batch_too_large, bad_items, item_too_large.
        """
        self._batch_size(len(data))
        try:
            largest = largest_item(data, items)
        except (ProtocolError, ValueError) as error:
            raise Refused(
                f"the batch does not hold {items} items ({error})",
                "send each item as a msgpack bin, one after the other, and count them",
                code="bad_items",
            ) from error
        self.item_size(largest)

    def _batch_size(self, size: int) -> None:
        if size > self._limits.batch_bytes:
            raise Refused(
                f"a batch of {size} bytes is over the limit of {self._limits.batch_bytes}",
                "send smaller batches, or raise max_batch_bytes in the broker's configuration",
                code="batch_too_large",
            )

    def whole(
        self, emitter_id: int, envelope_id: UUID, events: Sequence[NewEvent], header_bytes: int = 0
    ) -> tuple[PutEvent, ...]:
        """Let an envelope pass that comes as a whole; returns its events as they are written.

        Args:
            header_bytes: of its own headers.

        Raises:
            Refused: as the single calls would.
        """
        limits = self.limits(emitter_id)
        check_events(envelope_id, len(events), limits)
        puts = tuple([self._whole_event(emitter_id, event) for event in events])
        if len(events) > 1 and len({event.event_id for event in events}) < len(events):
            raise Refused("two events have the same id", "make an id for each event", code="wrong_arguments")
        items = sum([event.items for event in events])
        data_bytes = sum([len(event.data) + event.tags.size for event in events])
        check_room(envelope_id, items, data_bytes + header_bytes, limits)
        return puts

    def group(self, emitter_ids: Sequence[int], entries: Sequence[Any], large_bytes: int | None) -> PutGroup:
        """Read envelopes of one event each as columns, and let them pass.

        Args:
            emitter_ids: of the emitter of each.
            entries: the envelopes as ``GroupIntake.put_envelopes`` gets them.
            large_bytes: the data that goes to the object store has so many bytes and more; None without one.

        Raises:
            Refused: as the single calls would for one of them; or one of them must go alone.
            Failed: paused.
        """
        (ids, event_ids, types, items, data), size, largest, tagged = self._columns(emitter_ids, entries)
        heads, tags, most = [PLAIN_HEAD] * len(ids), [NO_TAGS] * len(ids), largest
        if tagged:
            header_sizes = _read_heads(emitter_ids, entries, tagged, ids, event_ids, heads, tags)
            size, most = size + sum(header_sizes), largest + max(header_sizes)
        if len({*ids, *event_ids}) < 2 * len(ids):
            raise not_plain()
        if large_bytes is not None and largest >= large_bytes:
            raise Refused("an envelope goes alone whose data goes to the object store", code="wrong_arguments")
        if most > self._passing_bytes or max(items) > self._limits.envelope_items:
            sizes = [largest_item(each, number) for each, number in zip(data, items, strict=True) if number]
            self.item_size(max(sizes, default=0))
            self._batch_size(largest)
            check_room(NO_ID, max(items), most, self._limits)
        return PutGroup(emitter_ids, self._clock.now(), ids, event_ids, types, items, data, heads, tags, size)

    def _columns(self, emitter_ids: Sequence[int], entries: Sequence[Any]) -> "tuple[_Columns, int, int, list[int]]":
        """Read what each envelope has beside head and tags.

        Returns:
            The columns; the bytes of all data, and of the largest; the places that are for ``_read_heads``.
        """
        columns: _Columns = [], [], [], [], []
        ids, event_ids, types, counts, parts = columns
        tagged: list[int] = []
        size = largest = 0
        allowed = self._allowed
        try:
            # For few envelopes, iterators over columns take twice the time of this loop, and no less for many.
            for emitter_id, entry in zip(emitter_ids, entries, strict=True):
                envelope_id, event_id, name, items, data, head, tags = entry
                # As of ``_is_own``, whose calls each envelope would pay for.
                if (
                    (head is not None or tags is not None or type(envelope_id) is not bytes)
                    or (type(event_id) is not bytes or len(envelope_id) != ID_BYTES or len(event_id) != ID_BYTES)
                    or (envelope_id[6] >> 4 == COMPUTED_VERSION or event_id[6] >> 4 == COMPUTED_VERSION)
                ):
                    tagged.append(len(ids))
                if type(name) is not str or type(items) is not int or type(data) is not bytes:
                    raise not_plain()
                length = len(data)
                size += length
                if length > largest:
                    largest = length
                if not (items == 1 and data[:1] == SHORT_BIN and data[1] + 2 == length) and (items or data):
                    largest_item(data, items)
                types.append(allowed.get((emitter_id, name)) or self._group_type(emitter_id, name))
                ids.append(envelope_id)
                event_ids.append(event_id)
                counts.append(items)
                parts.append(data)
        except (ProtocolError, LookupError, TypeError, ValueError):
            raise not_plain() from None
        return columns, size, largest, tagged

    def _group_type(self, emitter_id: int, type_name: str) -> GroupType:
        event_type = self.event_type(emitter_id, type_name)
        if event_type.immediate_reply:
            raise _reply_wanted(type_name)
        self.new_envelope(emitter_id)
        check_events(NO_ID, 1, self.limits(emitter_id))
        kind = event_type.grouped
        if event_type.pause is None and self._configuration.catalog.emitters[emitter_id].pause is None:
            self._allowed[emitter_id, type_name] = kind
        return kind

    def _whole_event(self, emitter_id: int, event: NewEvent) -> PutEvent:
        event_type = self.event_type(emitter_id, event.type_name)
        if event_type.immediate_reply:
            raise _reply_wanted(event.type_name)
        if event.items or event.data:
            self.batch(event.items, event.data)
        ids = (event.event_id, event_type.id, event.type_name, event_type.graph_id)
        return PutEvent(*ids, event.items, event.data, event_type.first_name, event.tags, event_type.compress)


def _reply_wanted(type_name: str) -> Refused:
    return Refused(
        f'events of type "{type_name}" are answered by an immediate reply',
        "send its envelope by single calls",
        code="reply_wanted",
    )


def check_room(envelope_id: UUID, items: int, data_bytes: int, limits: EnvelopeLimits) -> None:
    """Let an envelope hold so many items and bytes.

    Raises:
        Refused: envelope_too_large.
    """
    if items > limits.envelope_items:
        raise _too_large(envelope_id, f"{limits.envelope_items} items", "max_envelope_items")
    if data_bytes > limits.envelope_bytes:
        raise _too_large(envelope_id, f"{limits.envelope_bytes} bytes", "max_envelope_bytes")


def check_events(envelope_id: UUID, events: int, limits: EnvelopeLimits) -> None:
    """Let an envelope hold so many events: all of them are sealed at once, and others wait meanwhile.

    Raises:
        Refused: envelope_too_large.
    """
    if events > limits.envelope_events:
        raise _too_large(envelope_id, f"{limits.envelope_events} events", "max_envelope_events")


def _too_large(envelope_id: UUID, limit: str, option: str) -> Refused:
    return Refused(
        f"envelope {envelope_id} would hold more than {limit}",
        f"split it, or raise {option} in the broker's configuration",
        code="envelope_too_large",
    )


def not_plain() -> Refused:
    """Make the error for a group that has to be sorted. The fault of each envelope is told when it goes alone."""
    return Refused("the envelopes are no group", code="wrong_arguments")


def _is_own(value: object) -> bool:
    """Check whether an id may be one that a caller has made: the bus makes those of version 5 (RFC 9562)."""
    return type(value) is bytes and len(value) == ID_BYTES and value[6] >> 4 != COMPUTED_VERSION


def _read_heads(
    emitter_ids: Sequence[int], entries: Sequence[Any], tagged: Sequence[int], *columns: list[Any]
) -> list[int]:
    """Read heads and tags into columns, with the ids that follow from keys; give the bytes of headers of each.

    Args:
        tagged: the places of those that have a head or tags, or ids that only an envelope with a key may have.
        columns: of ids, event ids, heads and tags.

    Raises:
        Refused: one of them can't be in a group, or as ``heads_of_arrays`` and ``tags_of_array``.
    """
    ids, event_ids, heads, tags = columns
    sizes: list[int] = []
    keyed: list[int] = []
    for place, head in zip(tagged, heads_of_arrays(map(itemgetter(5), map(entries.__getitem__, tagged))), strict=True):
        written = entries[place][6]
        heads[place] = head
        tags[place] = of_event = NO_TAGS if written is None else tags_of_array(written)
        _, key, headers = head
        sizes.append(len(headers or b"") + len(of_event[0] or b""))
        if key is not None:
            keyed.append(place)
        elif not (_is_own(ids[place]) and _is_own(event_ids[place])):
            raise not_plain()
    made = keyed_ids([emitter_ids[place] for place in keyed], [str(heads[place].key) for place in keyed])
    for place, envelope_id, event_id in zip(keyed, *made, strict=True):
        ids[place], event_ids[place] = envelope_id, event_id
    return sizes


# -- limits of emitters ------------------------------------------------------------------------------------------------


class TokenBucket:
    """Bounds a rate; pure.

    An amount that is larger than the bucket passes when that is full; what follows waits for longer.

    Args:
        rate: per second.
        now: the moment at which the full bucket is made, in seconds.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._most = rate * BURST_SECONDS
        self._level = self._most
        self._at = now

    def change(self, rate: int) -> None:
        """Go on at another rate."""
        self._rate, self._most = rate, rate * BURST_SECONDS

    def wait(self, amount: int, now: float) -> float:
        """Compute the seconds until an amount passes; 0 if it passes now."""
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self._most) - self._level) / self._rate)

    def take(self, amount: int) -> None:
        """Take an amount that passes."""
        self._level -= amount


class _Usage:
    """The use that one emitter makes of the bus."""

    def __init__(self) -> None:
        self.buckets: dict[str, TokenBucket] = {}
        self.calls = 0
        self.call_bytes = 0


class Throttle:
    """Refuses calls of emitters that go beyond their limits.

    Args:
        configuration: has the limits; a change is in force at once.
        now: the time in seconds.

    Attributes:
        bounds_calls: whether the calls in flight of any emitter are limited.
    """

    def __init__(self, configuration: Configuration, now: Callable[[], float]) -> None:
        self.configuration = configuration
        self._now = now
        self._usage: dict[int, _Usage] = {}
        self._limited: frozenset[int] = frozenset()
        """The emitters that have limits."""
        self._follow()
        configuration.on_change(self._follow)

    def limits(self, emitter_id: int) -> SendingLimits | None:
        """Give the limits of an emitter; None where it has none."""
        emitter = self.configuration.catalog.emitters.get(emitter_id)
        return None if emitter is None else emitter.limits

    def charge(self, emitter_id: int, items: int, data_bytes: int) -> None:
        """Let items pass that come in now.

        Raises:
            Failed: slow_down.
        """
        for bucket, amount in self._buckets(emitter_id, items, data_bytes):
            bucket.take(amount)

    def _follow(self) -> None:
        """Take over from a new catalog which emitters have limits."""
        emitters = self.configuration.catalog.emitters
        self._limited = frozenset(each for each, emitter in emitters.items() if emitter.limits is not None)
        self.bounds_calls = any(map(self.counts_calls, self._limited))

    def charge_all(self, emitter_ids: Sequence[int], items: Sequence[int], data: Sequence[bytes]) -> None:
        """Let the items of envelopes of several emitters pass, all or none of them; see ``charge``."""
        if self._limited.isdisjoint(emitter_ids):
            return
        charged = []
        for emitter_id in self._limited.intersection(emitter_ids):
            own = [place for place, each in enumerate(emitter_ids) if each == emitter_id]
            charged += self._buckets(
                emitter_id, sum([items[place] for place in own]), sum([len(data[place]) for place in own])
            )
        for bucket, amount in charged:
            bucket.take(amount)

    def _buckets(self, emitter_id: int, items: int, data_bytes: int) -> list[tuple[TokenBucket, int]]:
        """Give the buckets of an emitter, and the amount that each of them lets pass.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        if limits is None:
            return []
        now = self._now()
        usage = self._use(emitter_id)
        charged = []
        for what, rate, amount in (
            ("items", limits.items_per_second, items),
            ("bytes", limits.bytes_per_second, data_bytes),
        ):
            if rate is None:
                usage.buckets.pop(what, None)
                continue
            bucket = usage.buckets.get(what)
            if bucket is None:
                bucket = usage.buckets[what] = TokenBucket(rate, now)
            bucket.change(rate)
            if (seconds := bucket.wait(amount, now)) > 0:
                raise _slow_down(f"the emitter sends more than {rate} {what} a second", seconds)
            charged.append((bucket, amount))
        return charged

    def check_open(self, emitter_id: int, count: Callable[[int], int]) -> None:
        """Let an emitter open an envelope.

        Args:
            count: counts its open envelopes.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        most = None if limits is None else limits.open_envelopes
        if most is not None and count(emitter_id) >= most:
            raise _slow_down(f"the emitter has {most} open envelopes, and may have no more", ENVELOPE_SECONDS)

    def begin_call(self, emitter_id: int, size: int) -> None:
        """Let a call pass that ``end_call`` ends; one may always be in flight, however large.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        usage = self._use(emitter_id)
        if limits is not None and usage.calls:
            if limits.calls_in_flight is not None and usage.calls >= limits.calls_in_flight:
                cause = f"{usage.calls} calls of the emitter are in flight, the most that it may have"
                raise _slow_down(cause, LEAST_SECONDS)
            if limits.bytes_in_flight is not None and usage.call_bytes + size > limits.bytes_in_flight:
                cause = f"calls with {usage.call_bytes} bytes are in flight, and it may have {limits.bytes_in_flight}"
                raise _slow_down(cause, LEAST_SECONDS)
        usage.calls += 1
        usage.call_bytes += size

    def end_call(self, emitter_id: int, size: int) -> None:
        """Note the answer to a call."""
        usage = self._use(emitter_id)
        usage.calls -= 1
        usage.call_bytes -= size

    def counts_calls(self, emitter_id: int) -> bool:
        """Check whether the calls of an emitter in flight are limited."""
        limits = self.limits(emitter_id)
        return limits is not None and not (limits.calls_in_flight is None and limits.bytes_in_flight is None)

    def _use(self, emitter_id: int) -> _Usage:
        usage = self._usage.get(emitter_id)
        if usage is None:
            usage = self._usage[emitter_id] = _Usage()
        return usage


def _slow_down(cause: str, seconds: float) -> Failed:
    seconds = max(round(seconds, 3), LEAST_SECONDS)
    return Failed(cause, f"repeat the call in {seconds:g} s", code=SLOW_DOWN, details={"seconds": seconds})


# -- options as callers write them: the maps and arrays of wire.md -----------------------------------------------------


def head_of(options: EnvelopeOptionsMap | None) -> EnvelopeHead:
    """Read the options of an envelope that a caller wrote.

    Raises:
        Refused: wrong_arguments, for an option that there is not, or that can't have this value; bad_header,
            headers_too_large.
    """
    if not options:
        return PLAIN_HEAD
    for name, value in options.items():
        if name != "headers":
            _check(name, value)
    return EnvelopeHead(options.get("ordering_key"), options.get("key"), check_packed(options.get("headers")))


_MADE_HEAD: Callable[[tuple[object, ...]], EnvelopeHead] = partial(tuple.__new__, EnvelopeHead)
"""Makes a head without a call of a Python function."""


def heads_of_arrays(values: Iterable[Any]) -> list[EnvelopeHead]:
    """Read the heads of the envelopes in a group, as ``head_of`` does.

    Raises:
        Refused: one of them is no head, or as ``head_of``.
    """
    heads: list[EnvelopeHead] = []
    # Programs send the same headers again and again.
    passed: dict[bytes, bytes | None] = {}
    for value in values:
        if value is None:
            heads.append(PLAIN_HEAD)
            continue
        if type(value) not in (list, tuple) or len(value) != len(PLAIN_HEAD):
            cause = "the head of an envelope is no array"
            raise _wrong(cause, "write it as [ordering_key, key, headers], or nil without any")
        ordering_key, key, headers = value
        # As ``_check``, whose two calls each envelope would pay for.
        for name, text in (("ordering_key", ordering_key), ("key", key)):
            if text is not None and (type(text) is not str or not 0 < len(text) <= LONGEST[name] or "\0" in text):
                _check(name, text)
        if type(headers) is bytes and headers in passed:
            headers = passed[headers]
        elif headers is not None:
            headers = passed[headers] = check_packed(headers)
        heads.append(_MADE_HEAD((ordering_key, key, headers)))
    return heads


def tags_of_array(value: Value) -> EventTags:
    """Read the head of an event in a group, as ``tags_of`` does."""
    match value:
        case None:
            return NO_TAGS
        case [headers, partition_key]:
            return EventTags(check_packed(headers), check_partition_key(partition_key))
    raise _wrong("the head of an event is no array", "write it as [headers, partition_key], or nil without any")


def number_of(options: EventOptionsMap | None) -> tuple[int | None, EventOptionsMap]:
    """Read the number of an event that a caller wrote, and give the other options.

    Raises:
        Refused: wrong_arguments, for a number below 1.
    """
    others: EventOptionsMap = {**options} if options else {}
    number = others.pop("number", None)
    if number is not None and number < 1:
        raise _wrong(f"event {number} of an envelope can't be", "count its events from 1")
    return number, others


def tags_of(options: object) -> EventTags:
    """Read the options of an event that a caller wrote.

    Raises:
        Refused: wrong_arguments, for an option that there is not; bad_header, headers_too_large, bad_partition_key.
    """
    if not options:
        return NO_TAGS
    if not isinstance(options, dict):
        raise _wrong("the options of an event are no map", "write them as a map")
    for name in options:
        if name not in EventTags._fields:
            raise _wrong(f"an event has no option {str(name)[:64]!r}", f"there are {', '.join(EventTags._fields)}")
    return EventTags(check_packed(options.get("headers")), check_partition_key(options.get("partition_key")))


def _check(name: object, value: object) -> None:
    longest = LONGEST.get(name) if isinstance(name, str) else None
    if longest is None:
        raise _wrong(f"an envelope has no option {str(name)[:64]!r}", f"there are {', '.join(LONGEST)}, headers")
    # PostgreSQL keeps no zero character.
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest and "\0" not in value):
        raise _wrong(f"{name} of the envelope can't be used", f"give a text of 1 to {longest} characters without zeros")


def _wrong(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="wrong_arguments")
