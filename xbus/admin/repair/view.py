"""The page of ``xbus parked show``: for whom an envelope is parked, why, and which items; the rows of failures."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from xbus.admin.objects import of_failure, of_parked
from xbus.admin.output import CAUSE, Column, Output, facts, moment, name_column, some
from xbus.admin.repair.moves import check_index, find_event, read_items
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.operations.corrections import Correction, read_corrections
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.failures import FailureGroup, FailureSummary, list_failures
from xbus.broker.journal.operations.parked import Parked, find_parked
from xbus.clock import SystemClock

FAILURE_HEADS = (
    "AT",
    name_column("ROLE"),
    Column("NODE", wide_only=True),
    Column("VERB", wide_only=True),
    name_column("CODE"),
    CAUSE,
    Column("ITEMS", narrows=5),
    Column("TRACKING", painted=True),
    Column("OWNER", optional=True),
    Column("ID", to_right=True),
)

GROUP_HEADS = (
    "NEWEST",
    Column("OLDEST", wide_only=True),
    name_column("ROLE"),
    Column("VERB", wide_only=True),
    name_column("CODE"),
    CAUSE,
    Column("FAILURES", to_right=True),
    Column("TRACKING", narrows=20),
    Column("OWNERS", optional=True),
    "GROUP",
)


def failure_rows(found: Sequence[FailureSummary], output: Output) -> list[tuple[object, ...]]:
    """Make the rows of failures, for :data:`FAILURE_HEADS`."""
    now = SystemClock().now()
    return [
        (
            output.when(failure.at, now),
            failure.role,
            failure.node,
            failure.verb,
            failure.code,
            failure.message,
            some(failure.indices),
            failure.tracking,
            failure.owner,
            str(failure.id),
        )
        for failure in found
    ]


def group_rows(found: Sequence[FailureGroup], output: Output) -> list[tuple[object, ...]]:
    """Make the rows of groups, for :data:`GROUP_HEADS`."""
    now = SystemClock().now()
    return [
        (
            output.when(group.newest.at, now),
            output.when(group.first_at, now),
            group.newest.role,
            group.newest.verb,
            group.newest.code,
            group.newest.message,
            f"{group.count}{'+' * group.at_least}",
            ", ".join(f"{count} {state}" for state, count in group.tracking.items()),
            ", ".join(group.owners) or None,
            group.fingerprint,
        )
        for group in found
    ]


SHOWN_ITEMS = 5
SHOWN_FAILURES = 20
MOST_ITEMS = 1000

PARKED_HEADS = (
    "SINCE",
    "ROLE",
    Column("SERVICE", wide_only=True),
    "WHAT",
    "ATTEMPTS",
    "CODE",
    CAUSE,
)


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item with its corrections.

    Args:
        named: whether a failure names it, or it is parked alone.
        corrections: those that count: one for all, and those for single roles that are newer.
        secret: paths of the fields that are hidden.
    """

    event: PastEvent
    index: int
    data: bytes
    named: bool
    corrections: Sequence[Correction]
    secret: Set[str]

    @property
    def payload(self) -> Payload:
        """Its value, which shows no secret fields."""
        return Payload.of(self.data, self.secret)

    def corrected(self, correction: Correction) -> Payload:
        """Read what a correction made of it."""
        return Payload.of(correction.after, self.secret)


@dataclass(frozen=True, slots=True)
class View:
    """An envelope that is parked, with its newest failures and the items that were asked for."""

    past: Past
    parked: Sequence[Parked]
    failures: Sequence[FailureSummary]
    items: Sequence[ShownItem]

    def lines(self, output: Output) -> Iterator[str]:
        """Write it for a person."""
        yield from facts(
            {
                "envelope": self.past.envelope_id,
                "repeats": self.past.origin_id,
                "types": ", ".join(dict.fromkeys(event.type_name for event in self.past.events)),
                "events": len(self.past.events),
                "items": sum(event.items or 0 for event in self.past.events),
            }
        )
        yield from output.block(
            "PARKED", PARKED_HEADS, [row for parked in self.parked for row in _rows(parked, output)]
        )
        yield from output.block("FAILURES", FAILURE_HEADS, failure_rows(self.failures, output))
        if self.items:
            yield ""
            yield "ITEMS"
        for item in self.items:
            yield from (f"  {line}" for line in _item(item))

    def plain(self) -> dict[str, object]:
        """Make a map of it for a program."""
        return {
            "envelope_id": self.past.envelope_id,
            "origin_id": self.past.origin_id,
            "event_list": [
                {
                    "event_id": event.event_id,
                    "event_number": event.number,
                    "type": event.type_name,
                    "items": event.items,
                }
                for event in self.past.events
            ],
            "parked": [of_parked(parked) for parked in self.parked],
            "failures": [of_failure(failure) for failure in self.failures],
            "item_list": [_plain_item(item) for item in self.items],
        }


def view(
    connection: Connection,
    envelope_id: UUID,
    role: str | None = None,
    event: str | None = None,
    span: tuple[int, int] | None = None,
    *,
    show_secrets: bool = False,
) -> View:
    """Read a parked envelope.

    Args:
        role: only for the role with this login.
        event: the event of the wanted items, by number or id; None for the only one.
        span: the first and the last index of the wanted items. None for those that failures name, or the first few if
            no failure names any.
        show_secrets: whether the items show the fields that their event types call secret.

    Raises:
        Refused: it does not exist, or is not parked.
    """
    past, found = find_parked(connection, envelope_id, role)
    failures = list_failures(connection, envelope_id=envelope_id, limit=SHOWN_FAILURES)
    named = list(_named(past, found, failures))
    if span is None and event is None:
        places = list(islice(named or _first(past), SHOWN_ITEMS))
    else:
        places = list(_spanned(find_event(past, event), span))
    data = _read(connection, places)
    logins = {parked.role for parked in found}
    corrections = _standing(
        correction for correction in read_corrections(connection, envelope_id) if correction.role in {None, *logins}
    )
    secrets = {} if show_secrets else read_secret_fields(connection)
    items = [
        ShownItem(
            of_event,
            index,
            data[of_event, index],
            (of_event, index) in named,
            corrections.get((of_event.event_id, index), ()),
            secrets.get(of_event.type_name, frozenset()),
        )
        for of_event, index in places
    ]
    return View(past, found, failures, items)


def _named(past: Past, found: Sequence[Parked], failures: Sequence[FailureSummary]) -> Iterator[tuple[PastEvent, int]]:
    """Iterate over the items that failures name and those parked alone, each once."""
    events = {event.event_id: event for event in past.events}
    blamed = [(failure.event_id, index) for failure in failures for index in failure.indices or ()]
    alone = [(item.event_id, item.index) for parked in found for item in parked.items]
    for event_id, index in dict.fromkeys([*blamed, *alone]):
        event = None if event_id is None else events.get(event_id)
        # A recipient may name any index.
        if event is not None and 0 <= index < (event.items or 0):
            yield event, index


def _first(past: Past) -> Iterator[tuple[PastEvent, int]]:
    return ((event, index) for event in past.events for index in range(event.items or 0))


def _spanned(event: PastEvent, span: tuple[int, int] | None) -> Iterator[tuple[PastEvent, int]]:
    first, last = span or (0, SHOWN_ITEMS - 1)
    if span is not None:
        check_index(event, first)
    return ((event, index) for index in range(first, min(last, first + MOST_ITEMS - 1, (event.items or 0) - 1) + 1))


def _read(connection: Connection, places: Sequence[tuple[PastEvent, int]]) -> dict[tuple[PastEvent, int], bytes]:
    """Read the bytes of items, those of an event together, because many may be in one segment."""
    indices: dict[PastEvent, list[int]] = {}
    for event, index in places:
        indices.setdefault(event, []).append(index)
    return {
        (event, index): item
        for event, of_event in indices.items()
        for index, item in read_items(connection, event, of_event)
    }


def _standing(corrections: Iterator[Correction]) -> Mapping[tuple[UUID, int], Sequence[Correction]]:
    """Give the valid corrections for each item: one for all replaces all before it."""
    standing: dict[tuple[UUID, int], dict[str | None, Correction]] = {}
    for correction in corrections:
        of_item = standing.setdefault((correction.event_id, correction.index), {})
        if correction.role is None:
            of_item.clear()
        of_item[correction.role] = correction
    return {place: list(by_role.values()) for place, by_role in standing.items()}


def _rows(parked: Parked, output: Output) -> Iterator[tuple[object, ...]]:
    now = SystemClock().now()
    common = (parked.role, parked.service)
    if (whole := parked.delivery) is not None:
        yield (output.when(whole.since, now), *common, "envelope", whole.attempts, whole.code, whole.cause)
    for item in parked.items:
        what = f"item {item.index} of event {item.number}"
        yield (output.when(item.since, now), *common, what, None, item.code, item.cause)


def _item(item: ShownItem) -> Iterator[str]:
    payload = item.payload
    told = [f"event {item.event.number}, item {item.index}", payload.kind, f"{len(item.data)} bytes"]
    yield ", ".join(told + ["named as bad"] * item.named)
    yield from (f"  {line}" for line in payload.lines())
    for correction in item.corrections:
        for_whom = correction.role or "all who lack it"
        yield f"corrected for {for_whom} {moment(correction.at)} by {correction.reason}"
        yield from (f"  {line}" for line in item.corrected(correction).lines())


def _plain_item(item: ShownItem) -> dict[str, object]:
    payload = item.payload
    return {
        "event_id": item.event.event_id,
        "event_number": item.event.number,
        "type": item.event.type_name,
        "index": item.index,
        "named": item.named,
        "format": payload.kind,
        "bytes": len(item.data),
        "value": payload.plain,
        "corrections": [
            {
                "role": correction.role,
                "value": item.corrected(correction).plain,
                "at": correction.at,
                "reason": correction.reason,
            }
            for correction in item.corrections
        ],
    }
