"""The page of ``xbus parked show``: for whom an envelope is parked, why, and which items; the rows of failures."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from xbus.admin.objects import of_failure, of_parked
from xbus.admin.output import CAUSE, Column, Output, Row, facts, moment, name_column, some
from xbus.admin.repair.moves import check_index, find_event, read_items
from xbus.admin.repair.payload import Payload
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.repeats import Past, PastEvent
from xbus.broker.journal.operations.corrections import Correction, read_corrections
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.broker.journal.operations.failures import FailureGroup, FailureSummary, list_failures
from xbus.broker.journal.operations.parked import Parked, ParkedDelivery, ParkedItem, find_parked


def failure_rows(found: Sequence[FailureSummary], output: Output) -> list[Row]:
    """Make the rows of failures."""
    return [
        {
            "AT": output.when(failure.at),
            name_column("ROLE"): failure.role,
            Column("NODE", wide_only=True): failure.node,
            Column("VERB", wide_only=True): failure.verb,
            name_column("CODE"): failure.code,
            CAUSE: failure.message,
            Column("ITEMS", narrows=5): some(failure.indices),
            Column("TRACKING", painted=True): failure.tracking,
            Column("OWNER", optional=True): failure.owner,
            Column("ID", to_right=True): str(failure.id),
        }
        for failure in found
    ]


def group_rows(found: Sequence[FailureGroup], output: Output) -> list[Row]:
    """Make the rows of groups."""
    return [
        {
            "NEWEST": output.when(group.newest.at),
            Column("OLDEST", wide_only=True): output.when(group.first_at),
            name_column("ROLE"): group.newest.role,
            Column("VERB", wide_only=True): group.newest.verb,
            name_column("CODE"): group.newest.code,
            CAUSE: group.newest.message,
            Column("FAILURES", to_right=True): f"{group.count}{'+' * group.at_least}",
            Column("TRACKING", narrows=20): ", ".join(f"{count} {state}" for state, count in group.tracking.items()),
            Column("OWNERS", optional=True): ", ".join(group.owners) or None,
            "GROUP": group.fingerprint,
        }
        for group in found
    ]


SHOWN_ITEMS = 5
SHOWN_FAILURES = 20
MOST_ITEMS = 1000


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
        yield from output.block("PARKED", [row for parked in self.parked for row in _rows(parked, output)])
        yield from output.block("FAILURES", failure_rows(self.failures, output))
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


def _rows(parked: Parked, output: Output) -> Iterator[Row]:
    parts: list[ParkedDelivery | ParkedItem] = [*([] if parked.delivery is None else [parked.delivery]), *parked.items]
    for part in parts:
        yield {
            "SINCE": output.when(part.since),
            "ROLE": parked.role,
            Column("SERVICE", wide_only=True): parked.service,
            "WHAT": "envelope" if isinstance(part, ParkedDelivery) else f"item {part.index} of event {part.number}",
            "ATTEMPTS": part.attempts if isinstance(part, ParkedDelivery) else None,
            "CODE": part.code,
            CAUSE: part.cause,
        }


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
