"""A replay, as its operator sees it: described first, and sent with its progress."""

import shlex
import sys
from collections.abc import Iterator, Sequence

import click

from xbus.admin.output import counted, moment
from xbus.admin.progress import progress
from xbus.admin.replay.replaying import FIRST, Preview, ReplayRequest, preview, send_again
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.replay import NoWay, Unreached
from xbus.clock import SystemClock
from xbus.errors import Refused


def count(url: str, wanted: ReplayRequest) -> Preview:
    """Count what a replay would send, and show on a terminal how far that is.

    Raises:
        Refused: as :func:`xbus.admin.replay.replaying.preview`.
    """
    if not sys.stderr.isatty():
        return preview(url, wanted)
    positions = max(0, wanted.until - wanted.after)
    with progress(positions, "Counting") as bar:
        return preview(url, wanted, bar.update)


def send(url: str, wanted: ReplayRequest, found: Preview, decision: RepairDecision) -> None:
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
        return _no_way(history)
    if history.wants_reply:
        return _never(history)
    if history.rerouting:
        return _rerouted(history)
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
        send(url, wanted, found, decision)
    click.echo(
        f'Events of type "{history.type_name}" that are still open, or begin before the broker knows of the change, '
        f"lack the node too. To send them to {history.role} when they are sealed: {_later(history)}"
    )


def _no_way(history: NoWay) -> str:
    return (
        f"Role {history.role} gets nothing yet: no event type has a node for service {history.service}. When one has: "
        f"{_command('TYPE', history.role, history.after + 1, '--unreached')}"
    )


def _never(history: Unreached) -> str:
    return (
        f'Role {history.role} does not get the earlier events of type "{history.type_name}": they had no node '
        "for its service, and can't be sent again, because they have an immediate reply."
    )


def _rerouted(history: Unreached) -> str:
    return (
        f'Events of type "{history.type_name}" are rerouted now. When the broker\'s log tells: decision carried '
        f"out, role {history.role} gets those that it lacks by: {_later(history)}"
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
