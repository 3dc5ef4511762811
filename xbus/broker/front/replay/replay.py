"""Repeats envelopes for their emitter: as new envelopes, over the items of the old ones."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

from xbus.broker.front.envelopes import Checks, content_differs, envelope_unknown
from xbus.broker.front.replay.archive_restore import ArchiveRestore
from xbus.broker.front.replay.consumers import shown_to_emitter
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import repeats
from xbus.broker.journal.log.catalog import EventType
from xbus.broker.journal.log.repeats import ParkedRole, Past, RepeatStatus
from xbus.broker.journal.log.sessions import StoredIntroduction, read_consumers
from xbus.broker.journal.writes import Repeat, RepeatedEvent
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable, Refused
from xbus.ids import Ids
from xbus.states import EnvelopeState

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""The number of times that a retry begins anew after parked envelopes changed. Each time another call has advanced."""


class Replay:
    """Serves the calls of emitters about sealed envelopes and their consumers.

    Args:
        journal: has the envelopes, and takes their repeats.
        checks: know what the emitter may send.
        clock: dates what is written.
        ids: makes the ids of envelopes and events.
        ring: called after each repeat of an envelope.
        catch_up: reads the configuration anew, so that a repeat takes the graph that somebody has just corrected.
        restoring: restores archived envelopes.
    """

    def __init__(
        self,
        journal: Journal,
        checks: Checks,
        clock: Clock,
        ids: Ids,
        ring: Callable[[], None],
        catch_up: Callable[[], Awaitable[None]],
        restoring: ArchiveRestore,
    ) -> None:
        self._journal = journal
        self._checks = checks
        self._clock = clock
        self._ids = ids
        self._ring = ring
        self._catch_up = catch_up
        self._restoring = restoring

    async def consumers(self, emitter_id: int) -> list[StoredIntroduction]:
        """Read the introductions of the registered consumers, as an emitter may see them.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        found = await self._journal.read(read_consumers)
        may_send = partial(self._checks.allows, emitter_id)
        return [shown_to_emitter(consumer, may_send) for consumer in found]

    async def replay(self, emitter_id: int, envelope_id: UUID, new_id: UUID | None = None) -> UUID:
        """Have a received envelope delivered to everybody again, by the present graphs of its event types.

        The front first restores an archived one, which may take its time.

        Args:
            new_id: the id of the new envelope. A repeated call with it changes nothing.

        Returns:
            The id of the new envelope.

        Raises:
            Refused: envelope_unknown, envelope_open, unknown_type, type_not_allowed, reply_wanted; content_differs if
                another envelope has the new id.
            Failed: the envelope is archived, and can't be restored now (``envelope_archived``, ``journal_full``).
        """
        if new_id is not None and await self._was_replayed(emitter_id, envelope_id, new_id):
            return new_id
        await self._catch_up()
        past = await self._journal.read(repeats.read_past, envelope_id)
        if past is None or past.emitter_id != emitter_id:
            raise envelope_unknown(envelope_id)
        if past.state is not EnvelopeState.RECEIVED:
            raise _not_sealed(past)
        types = self._current_types(past)
        if past.archived:
            await self._restoring.bring_back(envelope_id)
            # That took its time, and ways may have changed.
            await self._catch_up()
            types = self._current_types(past)
        repeat = self._repeat(past, types, new_id or self._ids.new(), None)
        try:
            await self._write(repeat)
        except JournalError:
            # The same call may have been made twice at once.
            if new_id is None or not await self._was_replayed(emitter_id, envelope_id, new_id):
                raise
        return repeat.envelope_id

    async def _was_replayed(self, emitter_id: int, envelope_id: UUID, new_id: UUID) -> bool:
        known = await self._journal.read(repeats.read_past, new_id)
        if known is None:
            return False
        if (known.emitter_id, known.origin_id) != (emitter_id, envelope_id):
            raise content_differs(f"envelope {new_id} does not repeat envelope {envelope_id}")
        return True

    async def retry(self, emitter_id: int, event_id: UUID) -> UUID:
        """Have the envelope of an event delivered again to the roles that it is parked for, and to no others.

        Where nothing is parked any more because that was done before, nothing is done.

        Returns:
            The id of the event that repeats this one for those roles.

        Raises:
            Refused: event_unknown, nothing_to_retry, unknown_type, type_not_allowed, reply_wanted, role_not_reached.
        """
        await self._catch_up()
        for attempt in range(1, ATTEMPTS + 1):
            standing = await self._journal.read(repeats.read_standing, event_id)
            if standing is None or standing.past.emitter_id != emitter_id:
                raise event_unknown(event_id)
            number = next(event.number for event in standing.past.events if event.event_id == event_id)
            if not standing.parked:
                return await self._first_answer(standing, number)
            types = self._current_types(standing.past)
            await self._check_ways(standing, types)
            roles = [role.role_id for role in standing.parked]
            repeat = self._repeat(standing.past, types, self._ids.new(), roles)
            try:
                await self._write(repeat)
            except JournalUnavailable:
                raise
            except JournalError:
                if attempt == ATTEMPTS:
                    raise
                continue
            return next(event.event_id for event in repeat.events if event.number == number)
        raise AssertionError("the last attempt returns or raises")

    async def _first_answer(self, standing: RepeatStatus, number: int) -> UUID:
        if not standing.retries:
            raise _nothing_to_retry(standing.past)
        latest = list(standing.retries.values())[-1]
        return await self._journal.read(repeats.read_event_id, latest, number)

    def _current_types(self, past: Past) -> dict[str, EventType]:
        """Give the types of an envelope's events, as the emitter may send them now."""
        self._checks.new_envelope(past.emitter_id)
        types = {
            name: self._checks.event_type(past.emitter_id, name)
            for name in dict.fromkeys(event.type_name for event in past.events)
        }
        for event_type in types.values():
            if event_type.immediate_reply:
                raise Refused(
                    f'events of type "{event_type.name}" have an immediate reply',
                    "send its envelope anew, so that an emitter gets the reply",
                    code="reply_wanted",
                )
        return types

    async def _check_ways(self, standing: RepeatStatus, types: dict[str, EventType]) -> None:
        """Make sure that no event that was to reach a role would miss it now."""
        ways = {(event.graph_id, types[event.type_name].graph_id) for event in standing.past.events}
        services = await self._journal.read(
            repeats.read_consumer_services, {graph_id for way in ways for graph_id in way}
        )
        for role in standing.parked:
            lost = any(role.service_id in services[old] and role.service_id not in services[new] for old, new in ways)
            if lost or role.removed:
                raise _not_reached(standing.past, role)

    def _repeat(
        self, past: Past, types: dict[str, EventType], new_id: UUID, parked_for: Sequence[int] | None
    ) -> Repeat:
        events = [
            RepeatedEvent(
                self._ids.new(),
                event.segments_id,
                event.number,
                event.event_type_id,
                types[event.type_name].graph_id,
                event.estimate,
                event.items or 0,
                event.tags,
            )
            for event in past.events
        ]
        return Repeat(new_id, past.envelope_id, events, parked_for, self._clock.now())

    async def _write(self, repeat: Repeat) -> None:
        await self._journal.write(repeat)
        self._ring()
        log.info(
            "an envelope comes again",
            extra={
                "action": "repeated",
                "envelope_id": repeat.envelope_id,
                "origin_id": repeat.origin_id,
                "roles": repeat.parked_for,
            },
        )


def _not_sealed(past: Past) -> Refused:
    if past.state is EnvelopeState.CANCELLED:
        cause, next_step = f"envelope {past.envelope_id} was cancelled", "send it anew"
    else:
        cause, next_step = f"envelope {past.envelope_id} is not sealed yet", "end it first"
    return Refused(cause, next_step, code="envelope_open")


def event_unknown(event_id: object) -> Refused:
    """Make the same answer for an event that does not exist and for another emitter's: nobody learns which."""
    return Refused(
        f"event {event_id} is unknown to this emitter", "use the id that start_event gave", code="event_unknown"
    )


def _nothing_to_retry(past: Past) -> Refused:
    return Refused(
        f"envelope {past.envelope_id} is parked for nobody: it is delivered, or will be",
        f"see its state with xbus envelope show {past.envelope_id}",
        code="nothing_to_retry",
    )


def _not_reached(past: Past, role: ParkedRole) -> Refused:
    return Refused(
        f"envelope {past.envelope_id} is parked for role {role.login}, which its event types no longer lead to",
        "bring the role and the nodes of its service back with xbus apply",
        code="role_not_reached",
    )
