"""History is counted and sent to a role again, a page at a time: the broker writes between two of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from xbus.admin.replay.rate import SendingRate
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import Connection, connected, connected_to_write
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.replay import (
    FoundEnvelope,
    Part,
    ReplayTarget,
    Sent,
    count_removed,
    find_target,
    is_rerouting,
    note_replay,
    read_page,
    read_sent,
    send,
    unreached_graphs,
)
from xbus.clock import Clock
from xbus.errors import Refused

FIRST = "first"
"""The name of a replay to which its operator gives none."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The request for a replay: the envelopes and the role.

    Args:
        after: a position; what is wanted lies above it.
        until: its last position.
        unreached: whether only those events are wanted whose graph did not lead to the role's service.
        replay: the name of the replay: under one name nothing is sent twice.
        per_second: how many envelopes are sent in a second at the most; None for as many as can be.
    """

    type_name: str
    role: str
    after: int
    until: int
    unreached: bool = False
    replay: str = FIRST
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The envelopes that a replay would send.

    Args:
        target: the role.
        envelopes: their number, with the numbers of their events and items in the fields below.
        first: the first of them; None without any.
        last: the last of them.
        sent: how many a replay of this name has sent already.
        archived: how many it can't send, because only an archive has their items.
        removed: how many of all types retention has removed from this part of the log.
    """

    target: ReplayTarget
    envelopes: int = 0
    events: int = 0
    items: int = 0
    first: FoundEnvelope | None = None
    last: FoundEnvelope | None = None
    sent: int = 0
    archived: int = 0
    removed: int = 0


def find_part(url: str, since: datetime | int, until: datetime | int | None) -> tuple[int, int]:
    """Find the positions between two places of the log, as ``after`` and ``until`` of :class:`ReplayRequest`.

    Args:
        since: the first position, or the first moment.
        until: the last position, or the moment before which what is wanted was sealed; None for the end of the log.

    Raises:
        Refused: the end is not behind the beginning (``bad_range``).
    """
    if until is not None and not _is_in_order(since, until):
        raise Refused(
            "--to is not behind --from, so nothing lies between them",
            "give the earlier one as --from",
            code="bad_range",
        )
    with connected(url) as connection, connection.begin():
        head = read_head(connection)
        after = since - 1 if isinstance(since, int) else position_before(connection, since)
        end = head if until is None else _end(connection, until, head)
    return max(0, after), end


def _is_in_order(since: datetime | int, until: datetime | int) -> bool:
    """Check whether an envelope may lie between two places; a moment and a position only the log can compare."""
    if isinstance(since, int) and isinstance(until, int):
        return since <= until
    return not (isinstance(since, datetime) and isinstance(until, datetime)) or since < until


def _end(connection: Connection, until: datetime | int, head: int) -> int:
    return min(until, head) if isinstance(until, int) else position_before(connection, until)


def preview(url: str, wanted: ReplayRequest, on_positions: Callable[[int], object] = lambda positions: None) -> Preview:
    """Count what a replay would send.

    Args:
        on_positions: called behind each page, with the number of positions that it dealt with.

    Raises:
        Refused: as :func:`xbus.broker.journal.replay.find_target`; or ``reroute_pending``, where only what was not
            reached is wanted and the back is still to have some of it take the present graph.
    """
    with connected(url) as connection:
        with connection.begin():
            target = find_target(connection, wanted.type_name, wanted.role)
            part = _part(connection, target, wanted)
            removed = count_removed(connection, part.after, part.until) if part.after < part.until else 0
        found = Preview(target, removed=removed)
        after = part.after
        while after < part.until:
            with connection.begin():
                page = read_page(connection, part, after)
                sent = read_sent(connection, target, wanted.replay, page.envelopes)
            for envelope in page.envelopes:
                found = _counted(found, envelope, envelope.envelope_id in sent)
            on_positions(page.upto - after)
            after = page.upto
    return found


def _counted(found: Preview, envelope: FoundEnvelope, is_sent: bool) -> Preview:
    if is_sent:
        return replace(found, sent=found.sent + 1)
    if not envelope.here:
        # One that is neither here nor archived is counted as removed already.
        return replace(found, archived=found.archived + envelope.archived)
    return replace(
        found,
        envelopes=found.envelopes + 1,
        events=found.events + len(envelope.events),
        items=found.items + envelope.items,
        first=found.first or envelope,
        last=envelope,
    )


def send_again(
    url: str, wanted: ReplayRequest, decision: RepairDecision, clock: Clock, on_envelopes: Callable[[int], object]
) -> Sent:
    """Send the envelopes that a replay of this name has not sent yet. A page, or portion of one, is sent whole or not.

    Args:
        on_envelopes: called behind each of them, with the number of envelopes that were sent.

    Raises:
        Refused: as :func:`xbus.broker.journal.replay.find_target`, also where that came to be so meanwhile. Pages that
            were sent before stay sent.
    """
    total = Sent(0, 0, 0, 0)
    after = wanted.after
    rate = SendingRate(wanted.per_second, clock)
    # Read on a connection of its own: on SQLite nobody else could write meanwhile.
    with connected(url) as looking, connected_to_write(url) as connection:
        while after < wanted.until:
            with looking.begin():
                target = find_target(looking, wanted.type_name, wanted.role)
                page = read_page(looking, _part(looking, target, wanted), after)
            for envelopes in rate.portions(page.envelopes):
                sent = _send(connection, wanted, envelopes, decision, clock, is_first=not total.envelopes)
                total = total + sent
                on_envelopes(sent.envelopes)
            after = page.upto
    return total


def _send(
    connection: Connection,
    wanted: ReplayRequest,
    envelopes: Sequence[FoundEnvelope],
    decision: RepairDecision,
    clock: Clock,
    *,
    is_first: bool,
) -> Sent:
    began = clock.monotonic()
    with connection.begin():
        # What leads there may have been changed since the page was read.
        target = find_target(connection, wanted.type_name, wanted.role)
        sent = send(connection, target, wanted.replay, envelopes, clock.now())
        if sent.envelopes and is_first:
            note_replay(connection, target, f"positions {wanted.after + 1} to {wanted.until}", decision)
    if connection.dialect.name == "sqlite":
        # It lets in who asks first, so the broker is left as much of the time as this took.
        time.sleep(clock.monotonic() - began)
    return sent


def _part(connection: Connection, target: ReplayTarget, wanted: ReplayRequest) -> Part:
    if not wanted.unreached:
        return Part(wanted.after, wanted.until, target.type_id)
    if is_rerouting(connection, target.type_id):
        raise Refused(
            f'events of type "{target.type_name}" are still to be rerouted, which may bring them to the role anyway',
            "start the broker if it does not run, and repeat this when its log says: decision carried out",
            code="reroute_pending",
        )
    graphs = unreached_graphs(connection, target.type_id, target.service_id)
    return Part(wanted.after, wanted.until, target.type_id, graphs)
