"""Reads the log for programs that ask from any place on, without lease and checkpoint.

It never writes, and knows nothing of deliveries.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from xbus.broker.back.log import LogSlices
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.slices.listing import Start, parse_start, read_start
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, SliceEvent, Stretch, key_hash
from xbus.broker.journal.readers.settings import read_readers
from xbus.errors import Failed, Refused
from xbus.rpc.codec import Value
from xbus.rpc.messages import LogAnswer, ReadEventMap


def event_map(event: SliceEvent) -> ReadEventMap:
    """Write items of an event and the facts about it, as ``docs/wire.md`` describes them."""
    facts = event.facts
    return {
        "envelope_id": facts.envelope_id,
        "event_id": facts.event_id,
        "type": facts.type_name,
        "position": facts.position,
        "event": facts.event,
        "emitter": facts.emitter,
        "first_index": event.first_index,
        "items": event.items,
        "data": event.data,
        "sealed_at": facts.sealed_at.timestamp(),
        "key": facts.key,
        "ordering_key": facts.ordering_key,
        "partition_key": facts.partition_key,
        "headers": facts.headers,
        "event_headers": facts.event_headers,
    }


MOST_WAIT_SECONDS = 30.0
"""Seconds that a call may wait. More would keep calls open to programs that are gone."""

MOST_ITEMS = 1_000_000

DEFAULT_BYTES = 4 * 1024 * 1024

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of an answer, about, so that no reader makes the broker hold more."""

_KNOWN = frozenset({"types", "from", "key", "wait", "max_items", "max_bytes"})


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question of a program about the log.

    Args:
        types: the ids of the event types.
        start: where to begin.
        key: a partition key, or the ordering key of events without one; None for all.
        wait: seconds to wait while nothing is there.
        bounds: the most that comes.
    """

    types: frozenset[int]
    start: Start
    key: str | None
    wait: float
    bounds: SliceBounds


def read_question(options: Mapping[str, Value], known_types: Mapping[str, int], own: frozenset[int]) -> LogQuestion:
    """Read the options of a call.

    Args:
        known_types: the ids of all event types, by name.
        own: the ids of those that the caller's reader reads.

    Raises:
        Refused: an option is unknown or has a wrong value (``option_invalid``), a type is unknown (``type_unknown``) or
            not the reader's (``type_not_read``).
        BadPlace: ``from`` is no place and no moment (``place_invalid``, ``moment_invalid``).
    """
    if unknown := options.keys() - _KNOWN:
        raise _invalid(f"there is no option {min(map(str, unknown))!r:.60}", f"know {', '.join(sorted(_KNOWN))}")
    return LogQuestion(
        _types(options.get("types"), known_types, own),
        _start(options.get("from", "head")),
        _key(options.get("key")),
        _number(options, "wait", 0.0, 0.0, MOST_WAIT_SECONDS),
        SliceBounds(
            int(_number(options, "max_items", MOST_ITEMS, 1, MOST_ITEMS)),
            int(_number(options, "max_bytes", DEFAULT_BYTES, 1, MOST_BYTES)),
        ),
    )


def _start(value: Value) -> Start:
    return parse_start(value) if isinstance(value, str) else Place.of(value)


def _types(value: Value, known: Mapping[str, int], own: frozenset[int]) -> frozenset[int]:
    if value is None:
        return own
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not names or names != value:
        raise _invalid("types is no list of event types", "give a list of names, or leave it out for all")
    return frozenset(_type(name, known, own) for name in names)


def _type(name: str, known: Mapping[str, int], own: frozenset[int]) -> int:
    if name not in known:
        raise Refused(f"there is no event type {name!r:.100}", "see xbus type list", code="type_unknown")
    if known[name] not in own:
        raise Refused(
            f"the reader does not read events of the type {name}",
            "add the type to event_types of the reader in the bus file",
            code="type_not_read",
        )
    return known[name]


def _key(value: Value) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _invalid("key is no text", "give the partition key of the events that you want")
    return value


def _number(options: Mapping[str, Value], name: str, default: float, least: float, most: float) -> float:
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise _invalid(f"{name} is {value!r:.60}", f"give a number from {least:g} to {most:g}")
    return value


def _invalid(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="option_invalid")


ARCHIVE_SECONDS = 10.0
"""Seconds that a call waits for what comes back of an archive. Programs call again after that, and lose nothing."""


class LogReading:
    """Answers questions about the log; it keeps nothing of those who ask.

    Args:
        journal: knows where the log begins and ends.
        slices: reads the log.
    """

    def __init__(self, journal: Journal, slices: LogSlices) -> None:
        self._journal = journal
        self._slices = slices

    async def answer(self, question: LogQuestion) -> LogAnswer:
        """Read what is wanted, or wait for it.

        Raises:
            BadPlace: the log ends before the place at which to begin (``place_beyond_end``).
            JournalUnavailable: the database can't be read now.
        """
        start = await self._journal.read(read_start, question.start)
        found = await self._read(question, start)
        events = [event_map(event) for event in found.events]
        return {"from": list(start), "to": list(found.to), "events": events}

    async def _read(self, question: LogQuestion, place: Place) -> Slice:
        first, last = (0, LAST_HASH) if question.key is None else (key_hash(question.key),) * 2
        until = asyncio.get_running_loop().time() + question.wait
        while True:
            found = await self._slices.read(question.types, [Stretch(first, last, place)], question.bounds)
            place = found.to
            if found.archived and not found.events:
                # An answer with nothing would pass for the end of the log.
                patience = max(until, asyncio.get_running_loop().time() + ARCHIVE_SECONDS)
                if not await self._grows(question.types, found, patience):
                    raise _still_archived(place)
            elif found.events or not await self._grows(question.types, found, until):
                return found

    async def _grows(self, types: frozenset[int], found: Slice, until: float) -> bool:
        """Wait until more may be there; false once the time is over."""
        try:
            async with asyncio.timeout_at(until):
                await self._slices.beyond(types, found.to, is_archived=bool(found.archived))
        except TimeoutError:
            return False
        return True


def _still_archived(place: Place) -> Failed:
    return Failed(
        f"the items at {place} are in an archive, and are being put back",
        "call again; xbus health tells if they can't be put back",
        code="envelope_archived",
    )


class ReaderTypes:
    """The event types of readers, read anew after each change of the configuration.

    Args:
        journal: has the configuration.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._version = -1
        self._types: Mapping[str, frozenset[int]] = {}

    async def of_role(self, catalog: Catalog, role_id: int) -> frozenset[int]:
        """Give the ids of the event types that the reader of a role reads.

        Raises:
            Refused: the role is not a reader's (``not_a_reader``).
            JournalUnavailable: the database can't be read now.
        """
        if self._version != catalog.version:
            self._types = {reader.key: reader.event_types for reader in await self._journal.read(read_readers)}
            self._version = catalog.version
        role = catalog.reader_roles.get(role_id)
        if role is None or role.service not in self._types:
            raise Refused(
                "the role is not a reader's",
                "make a reader by [[reader]], and a role with its name as service, in the bus file",
                code="not_a_reader",
            )
        return self._types[role.service]
