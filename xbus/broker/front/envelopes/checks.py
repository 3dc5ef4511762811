"""Checks each call of an emitter: its rights, and the form and size of what it sends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.state import EnvelopeLimits, check_events, check_room
from xbus.broker.front.envelopes.throttle import Throttle
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.writes import PAUSED, GroupType, PauseEntry, PutEvent
from xbus.clock import Clock
from xbus.errors import Failed, ProtocolError, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import largest_item, largest_of

NO_ID = UUID(int=0)
"""Stands for the envelope in errors that nobody sees: what is wrong with one of a group is told when it goes alone."""


class NewEvent(NamedTuple):
    """An event of an envelope that comes in one call; ``data`` as in ``model.segment``."""

    event_id: UUID
    type_name: str
    items: int
    data: bytes
    tags: EventTags = NO_TAGS


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
        self.throttle = Throttle(configuration, clock.monotonic)

    def of(self, emitter_id: int) -> "EmitterChecks":
        """Give the checks of an emitter's items and events."""
        return EmitterChecks(self, emitter_id)

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
        if len(data) > self._limits.batch_bytes:
            raise Refused(
                f"a batch of {len(data)} bytes is over the limit of {self._limits.batch_bytes}",
                "send smaller batches, or raise max_batch_bytes in the broker's configuration",
                code="batch_too_large",
            )
        try:
            largest = largest_item(data, items)
        except (ProtocolError, ValueError) as error:
            raise Refused(
                f"the batch does not hold {items} items ({error})",
                "send each item as a msgpack bin, one after the other, and count them",
                code="bad_items",
            ) from error
        self.item_size(largest)

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

    def group(
        self, emitter_id: int, type_names: Sequence[str], items: Sequence[int], data: Sequence[bytes], most_bytes: int
    ) -> list[GroupType]:
        """Let envelopes of one event each pass; returns the types of the events.

        Args:
            type_names: theirs.
            items: how many each has.
            data: of each, as in ``model.segment``.
            most_bytes: the bytes of headers that any of them has at the most.

        Raises:
            Refused: as the single calls would for one of them.
            Failed: paused.
        """
        types = {name: self._group_type(emitter_id, name) for name in set(type_names)}
        largest = max(map(len, data))
        limits = self.limits(emitter_id)
        if largest > limits.batch_bytes or min(items) < 0:
            raise Refused("a batch of a group is too large, or counted wrong", code="batch_too_large")
        try:
            self.item_size(largest_of(data, items))
        except (ProtocolError, ValueError) as error:
            raise Refused("a batch does not hold its items", code="bad_items") from error
        check_events(NO_ID, 1, limits)
        check_room(NO_ID, max(items), largest + most_bytes, limits)
        return [types[name] for name in type_names]

    def _group_type(self, emitter_id: int, type_name: str) -> GroupType:
        event_type = self.event_type(emitter_id, type_name)
        if event_type.immediate_reply:
            raise _reply_wanted(type_name)
        return GroupType(event_type.id, type_name, event_type.hashed_name, event_type.graph_id, event_type.compress)

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


@dataclass(frozen=True, slots=True)
class EmitterChecks:
    """The checks of what one emitter sends."""

    checks: Checks
    emitter_id: int

    @property
    def limits(self) -> EnvelopeLimits:
        """The limits of its envelopes."""
        return self.checks.limits(self.emitter_id)

    def event_type(self, type_name: str) -> EventType:
        """Give an event type that it may send; see ``Checks.event_type``."""
        return self.checks.event_type(self.emitter_id, type_name)

    def is_compressed(self, type_name: str) -> bool:
        """Check whether the journal compresses the items of an event type."""
        return self.checks.is_compressed(type_name)

    def charge(self, items: int, data_bytes: int) -> None:
        """Let items pass that come in now; see ``Throttle.charge``."""
        self.checks.throttle.charge(self.emitter_id, items, data_bytes)
