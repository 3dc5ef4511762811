"""A replay: history is counted and sent to a role again, page by page, at a pace, and told to its operator."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

import click

from xbus.admin.output import counted, moment
from xbus.admin.progress import progress
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import Connection, connected, connected_to_write
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.replay import (
    FoundEnvelope,
    NoWay,
    Part,
    ReplayTarget,
    Sent,
    Unreached,
    count_removed,
    find_target,
    is_rerouting,
    note_replay,
    read_page,
    read_sent,
    send,
    unreached_graphs,
)
from xbus.clock import Clock, SystemClock
from xbus.errors import Refused

T = TypeVar("T")


class SendingRate:
    """Hands out what is to be sent, in portions of a second, each when its time has come.

    Args:
        per_second: how many at the most; None for no limit.
        clock: measures it.
        sleep: waits so many seconds.
    """

    def __init__(self, per_second: float | None, clock: Clock, sleep: Callable[[float], object] = time.sleep) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._began = clock.monotonic()
        self._handed_out = 0

    def portions(self, all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
        """Iterate over portions, and wait before each as the pace demands; all at once without one."""
        if self._per_second is None:
            yield all_of_them
            return
        size = max(1, int(self._per_second))
        for start in range(0, len(all_of_them), size):
            wait = self._began + self._handed_out / self._per_second - self._clock.monotonic()
            if wait > 0:
                self._sleep(wait)
            portion = all_of_them[start : start + size]
            self._handed_out += len(portion)
            yield portion


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


def count(url: str, wanted: ReplayRequest) -> Preview:
    """Count what a replay would send, and show on a terminal how far that is.

    Raises:
        Refused: as :func:`xbus.admin.replay.preview`.
    """
    if not sys.stderr.isatty():
        return preview(url, wanted)
    positions = max(0, wanted.until - wanted.after)
    with progress(positions, "Counting") as bar:
        return preview(url, wanted, bar.update)


def carry_out(url: str, wanted: ReplayRequest, found: Preview, decision: RepairDecision) -> None:
    """Send the found envelopes, and show the progress."""
    label = f"Sending {found.envelopes:,} envelopes to {wanted.role}"
    try:
        with progress(found.envelopes, label) as bar:
            sent = send_again(url, wanted, decision, SystemClock(), bar.update)
    except BaseException:
        click.echo(f"xbus: not all was sent; this goes on: {_goes_on(wanted, found)}", err=True)
        raise
    click.echo(f"Sent {counted(sent.envelopes, 'envelope')} with {counted(sent.items)} to {wanted.role}.")
    if sent.gone:
        raise Refused(
            f"{counted(sent.gone, 'envelope')} went meanwhile, by retention or into an archive",
            "xbus restore restores archived envelopes",
            code="envelopes_gone",
        )


def told(wanted: ReplayRequest, found: Preview) -> Iterator[str]:
    """Describe what a replay would send, in lines."""
    target = found.target
    where = f"positions {wanted.after + 1} to {wanted.until}"
    yield f'To {target.role} (service {target.service}), events of type "{target.type_name}" at {where}:'
    if found.first is not None and found.last is not None:
        counts = (counted(found.envelopes, "envelope"), counted(found.events, "event"), counted(found.items))
        yield f"  {', '.join(counts)}, sealed from {moment(found.first.closed_at)} to {moment(found.last.closed_at)}"
    if found.sent:
        were = f"{counted(found.sent, 'envelope')} {'was' if found.sent == 1 else 'were'} replayed to it before"
        yield f"  left out: {were}; --again with a new name sends them once more"
    if found.archived:
        yield f"  left out: {counted(found.archived, 'envelope')} in an archive"
    if found.removed:
        yield f"  {counted(found.removed, 'envelope')} of any type there: removed by retention, and can't be sent"
    if not found.envelopes:
        yield "Nothing is left to send."


def unsent(history: Unreached | NoWay) -> str:
    """Say how a new role gets the history that it wants, and that nobody has sent it."""
    if isinstance(history, NoWay):
        return (
            f"Role {history.role} gets nothing yet: no event type has a node for service {history.service}. When one "
            f"has: {_command('TYPE', history.role, history.after + 1, '--unreached')}"
        )
    if history.wants_reply:
        return (
            f'Role {history.role} does not get the earlier events of type "{history.type_name}": they had no node '
            "for its service, and can't be sent again, because they have an immediate reply."
        )
    if history.rerouting:
        return (
            f'Events of type "{history.type_name}" are rerouted now. When the broker\'s log tells: decision carried '
            f"out, role {history.role} gets those that it lacks by: {_later(history)}"
        )
    return (
        f'Earlier events of type "{history.type_name}" had no node for service {history.service}. To send them to '
        f"{history.role}: {_later(history)}"
    )


def send_history(url: str, histories: Sequence[Unreached | NoWay], decision: RepairDecision) -> None:
    """Send new roles the history that they want by ``start`` and no graph brings; report what can't be sent."""
    for history in histories:
        if isinstance(history, NoWay) or history.wants_reply or history.rerouting:
            click.echo(unsent(history))
        else:
            _send_history(url, history, decision)


def _send_history(url: str, history: Unreached, decision: RepairDecision) -> None:
    wanted = ReplayRequest(history.type_name, history.role, history.after, history.until, unreached=True)
    found = count(url, wanted)
    if found.envelopes or found.archived:
        click.echo(f'Earlier events of type "{history.type_name}" had no node for service {history.service}.')
        click.echo("\n".join(told(wanted, found)))
    if found.envelopes:
        click.echo(f"Should this be broken off, go on with: {_goes_on(wanted, found)}")
        carry_out(url, wanted, found, decision)
    click.echo(
        f'Events of type "{history.type_name}" that are still open, or begin before the broker knows of the change, '
        f"lack the node too. To send them to {history.role} when they are sealed: {_later(history)}"
    )


def _later(history: Unreached) -> str:
    return _command(history.type_name, history.role, history.after + 1, "--unreached")


def _goes_on(wanted: ReplayRequest, found: Preview) -> str:
    """Write the command that sends the rest after an interruption."""
    options = [f"--to {wanted.until}"]
    options += ["--unreached"] if wanted.unreached else []
    options += [f"--again {shlex.quote(wanted.replay)}"] if wanted.replay != FIRST else []
    options += ["--without-archived"] if found.archived else []
    options += [f"--rate {wanted.per_second:g}"] if wanted.per_second is not None else []
    return _command(wanted.type_name, wanted.role, wanted.after + 1, *options)


def _command(type_name: str, login: str, since: int, *options: str) -> str:
    words = ["xbus replay --type", shlex.quote(type_name), "--role", shlex.quote(login), f"--from {since}"]
    return " ".join([*words, *options])
