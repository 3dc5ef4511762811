"""The bus as a file: ``xbus apply``, ``xbus edit``, ``xbus export`` and ``xbus plan``."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click

from xbus.admin import bus_file
from xbus.admin.arguments import ROLE
from xbus.admin.bus_file.reader import Decisions, PlannedChange
from xbus.admin.bus_file.reader import apply_change as apply_in
from xbus.admin.bus_file.reader import plan_change as plan_in
from xbus.admin.objects import JsonObject, fields_of
from xbus.admin.output import Column, Output, counted, moment, name_column
from xbus.admin.program import Careful
from xbus.admin.progress import shown_on_terminal
from xbus.admin.rehearsal import Route, Tally, TypeComparison, Way, rehearse, types_of
from xbus.admin.replay import send_history
from xbus.admin.signatures import CommandBus, argument, command, confirm, option, shown
from xbus.broker.journal.configuration.checked import read_readable
from xbus.broker.journal.configuration.decisions import Owed
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.operations.envelopes.details import FEWEST_CHARACTERS, shorten
from xbus.ending import REFUSED
from xbus.errors import ConfigurationError, Refused, XbusError

ANSWERS = click.Choice([answer.value for answer in Owed])

OWED_FIRST = "To apply it, decide about what is owed: --owed keep, --owed drop, or --owed reroute."


class Problems(Refused):
    """A bus file that can't be applied, whose problems were told."""


def plan_change(bus: CommandBus, name: str, content: bytes, decisions: Decisions) -> PlannedChange:
    """Compare a bus file with the bus, and tell each problem with its line.

    Args:
        bus: the bus.
        name: what messages call the file.
        content: the bus file.
        decisions: of the person.

    Raises:
        Problems: the file can't be applied.
    """
    change = bus.read(lambda connection: plan_in(connection, content, decisions))
    if change.problems:
        told = [f"{name}:{problem.line}: {problem.sentence}" for problem in change.problems]
        click.echo("\n".join(told), err=True)
        which = "the problem" if len(told) == 1 else f"the {len(told)} problems"
        raise Problems(f"{name} was not applied, nothing was changed", f"correct {which} above", code="bad_bus_file")
    return change


def tell_change(change: PlannedChange) -> None:
    """Write each change, with the envelopes that are owed because of it."""
    for each in change.plan.changes:
        click.echo(str(each))
        for owed in change.owed_by(each):
            click.echo(f"  {owed}")


def decide_about_owed(change: PlannedChange, decisions: Decisions) -> Decisions:
    """Ask on a terminal for the decision about what is owed, where it is needed and was not given.

    Raises:
        click.exceptions.Exit: nobody can be asked, so the option must name it.
    """
    if decisions.owed is not None:
        return decisions
    if not change.arrears:
        return replace(decisions, owed=Owed.KEEP)
    if sys.stdin.isatty():
        answer = click.prompt("What is to become of the owed envelopes that are named above?", type=ANSWERS)
        return replace(decisions, owed=Owed(answer))
    click.echo(
        "xbus: nothing was changed, as envelopes are still owed: say --owed keep (they are delivered as they were to "
        "be, those of a removed role when it comes back), --owed drop, or --owed reroute",
        err=True,
    )
    raise click.exceptions.Exit(REFUSED)


def apply_change(bus: CommandBus, change: PlannedChange, decisions: Decisions) -> None:
    """Apply a plan that was told, and tell the work that it leaves.

    Raises:
        ConfigurationError: the bus has changed since the plan was made.
    """
    with bus.writing() as connection:
        applied = apply_in(connection, change, decisions, bus.now())
    for sentence in applied.sentences():
        click.echo(sentence)
    send_history(bus.url, applied.histories, bus.decision("its start"))


@command(kind=Careful)
def apply(
    bus: CommandBus,
    file: BinaryIO = argument(),
    dry_run: bool = option("Show what would change and who is still owed something. Change nothing."),
    prune: bool = option("List entries that the file does not name, and remove them."),
    yes: bool = option("Remove without asking."),
    owed: Owed | None = option(
        "Decide about envelopes that are still owed to removed roles, or to roles that no graph leads to any more: "
        "keep them, drop them, or reroute them (by the new graph; to another role)."
    ),
    to: str | None = option("With --owed reroute: the role that gets the envelopes of removed roles.", ROLE),
) -> None:
    """Change the bus to match FILE, all of it or nothing; - is standard input.

    Entries that the file does not name stay as they are. A removed role that comes back continues at its old place.
    """
    decisions = Decisions(prune, owed, to)
    change = plan_change(bus, getattr(file, "name", "<stdin>"), file.read(), decisions)
    tell_change(change)
    if not change.plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")
    if dry_run:
        first = f" {OWED_FIRST}" if change.arrears and owed is None else ""
        click.echo(f"Nothing was changed: this was a dry run.{first}")
        return
    decisions = decide_about_owed(change, decisions)
    if change.plan.removals:
        confirm("Remove the entries that are named above?", unless=yes)
    apply_change(bus, change, decisions)


@command()
def edit(bus: CommandBus) -> None:
    """Open the bus in your editor, show what you changed, and apply it after a yes.

    The variable VISUAL or EDITOR names the editor. An entry that you delete is removed from the bus. If your text
    is not applied, a file keeps it.
    """
    stored, wrong = bus.read(read_readable)
    if wrong:
        # The text would lack them, and what it lacks is removed.
        causes = "; ".join(f"{each.place}: {each.cause}" for each in wrong)
        raise ConfigurationError(f"rows of the configuration can't be read: {causes}", CORRECT_ROW)
    # A deleted entry is meant to go: the editor showed all of them.
    decisions = Decisions(prune=True)
    with _draft(bus_file.write(stored.in_use)) as draft:
        change = _edited(bus, draft, decisions)
        if change.plan.version != stored.version:
            raise ConfigurationError(
                "somebody else has changed the bus meanwhile, nothing was changed",
                "run xbus edit again, and take over what you wrote",
                code="changed_meanwhile",
            )
        if not change.plan.changes:
            click.echo("Nothing was changed.")
            return
        tell_change(change)
        decisions = decide_about_owed(change, decisions)
        confirm("Apply this?")
        apply_change(bus, change, decisions)


@contextmanager
def _draft(before: str) -> Iterator[Path]:
    """Give a file to edit; it stays, and is named, where the edited text is not applied."""
    descriptor, name = tempfile.mkstemp(prefix="xbus-edit-", suffix=".toml")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(before)
        yield draft
    except BaseException:
        if draft.exists() and draft.read_text(encoding="utf-8", errors="replace") != before:
            click.echo(f"Your text is in {draft}", err=True)
        else:
            draft.unlink(missing_ok=True)
        raise
    draft.unlink()


def _edited(bus: CommandBus, draft: Path, decisions: Decisions) -> PlannedChange:
    """Let a person edit the file until it can be applied.

    Raises:
        Problems: it can't, and the person gives up.
        XbusError: the file is gone.
    """
    while True:
        click.edit(filename=str(draft))
        try:
            return plan_change(bus, str(draft), _content(draft), decisions)
        except Problems:
            if not click.confirm("Edit it again?", default=True):
                raise


def _content(draft: Path) -> bytes:
    try:
        return draft.read_bytes()
    except OSError as error:
        cause = f"the editor left no text in {draft} ({error.strerror})"
        raise XbusError(cause, "run xbus edit again, and save the file at its place", code="unreadable_file") from error


@command()
def export(bus: CommandBus) -> None:
    """Write the bus as a file to standard output.

    The file has everything but passwords. If you apply it unchanged, nothing changes. The file lacks rows that an edit
    by SQL made unreadable: standard error names them.
    """
    stored, problems = bus.read(read_readable)
    click.echo(bus_file.write(stored.in_use), nl=False)
    for problem in problems:
        click.echo(f"left out: {problem.place}: {problem.cause}; {CORRECT_ROW}", err=True)


CORRECT_ROW = "correct that row, by SQL or with xbus apply"
MOST_EVENTS = 100_000


@command()
def plan(
    bus: CommandBus,
    file: BinaryIO = argument(),
    prune: bool = option("Plan the removal of entries that the file does not name, too."),
    last: int | None = option(
        "Say which roles would have got so many last events of each type.",
        click.IntRange(1, MOST_EVENTS),
        metavar="NUMBER",
    ),
    output: Output = shown(),
) -> None:
    """Show what FILE would change on the bus, and change nothing; - is standard input.

    With --last the command takes the last events that emitters sent, and compares which roles get them on the bus as it
    is, and on the bus as it would be. Nothing is sent. -o wide shows also what stays the same.
    """
    change = plan_change(bus, getattr(file, "name", "<stdin>"), file.read(), Decisions(prune))
    found: list[TypeComparison] = []
    ids: Mapping[UUID, str] = {}
    if last is not None:
        steps = last * len(types_of(change.plan))
        with connected(bus.url) as connection:
            with shown_on_terminal(lambda: steps, "Comparing") as tell:
                found = list(rehearse(connection, change.plan, last, tell))
            if not output.is_wide:
                with connection.begin():
                    ids = shorten(connection, (each for comparison in found for each in comparison.examples))
    if output.as_json:
        output.objects([_of_plan(change, None if last is None else found)])
        return
    tell_change(change)
    if not change.plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")
    if last is not None:
        click.echo("\n".join(_told(found, last, ids, output)))


def _told(found: Sequence[TypeComparison], last: int, ids: Mapping[UUID, str], output: Output) -> Iterator[str]:
    for each in found:
        if each.is_changed or output.is_wide:
            yield from _told_type(each, ids, output)
    same = ", ".join(f"{each.type} ({each.events:,})" for each in found if not each.is_changed)
    yield ""
    if same:
        yield output.paragraph(f"As before, of the last {last:,} events of each type: {same}.")
    else:
        yield "Nothing is as before." if found else "The bus has no event type."


def _told_type(found: TypeComparison, ids: Mapping[UUID, str], output: Output) -> Iterator[str]:
    since = "" if found.since is None else f", sealed since {moment(found.since)}"
    title = f"{found.type}: {counted(found.events, 'event')}{since}"
    rows = [
        {
            name_column("ROLE"): route.role,
            name_column("SERVICE"): route.service,
            "KIND": route.kind,
            "NOW": route.tally.now,
            "THEN": route.tally.then,
            Column("WAY", narrows=16, breaks=True): _way(route),
            Column("EXAMPLES", narrows=FEWEST_CHARACTERS): _examples(route.tally, ids),
        }
        for route in found.routes
        if route.is_changed or output.is_wide
    ]
    yield from output.block(title, rows) if rows else ("", title)
    for emitter, tally in found.senders:
        number = counted(max(tally.now, tally.then), "event")
        would = "would be refused" if tally.then < tally.now else "would be taken, which are refused now"
        yield f"  {number} of {emitter} {would}: {_examples(tally, ids)}"


def _way(route: Route) -> str:
    now, then = _words(route.now), _words(route.then)
    return then if now == then else f"{now}, then {then}"


def _words(way: Way | None) -> str:
    if way is None:
        return "none"
    return f"{', '.join(way.nodes)}{' behind ' if way.through else ''}{', '.join(way.through)}"


def _examples(tally: Tally, ids: Mapping[UUID, str]) -> str | None:
    return ", ".join(ids.get(each, str(each)) for each in tally.examples) or None


def _of_plan(change: PlannedChange, found: Sequence[TypeComparison] | None) -> JsonObject:
    return {
        "changes": [
            {
                "action": each.move,
                "object": f'{each.section} "{each.name}"',
                "former_name": each.former or None,
                "fields": each.fields,
                "owed": [
                    fields_of(owed, "change", "first", "last", oldest="owed_since")
                    for owed in change.arrears
                    if owed.change == each
                ],
            }
            for each in change.plan.changes
        ],
        "comparisons": None if found is None else [_of_comparison(each) for each in found],
    }


def _of_comparison(found: TypeComparison) -> JsonObject:
    return {
        "type": found.type,
        "events": found.events,
        "since": found.since,
        "changed": found.is_changed,
        "routes": [
            {
                "role": route.role,
                "service": route.service,
                "kind": route.kind,
                "changed": route.is_changed,
                **_of_tally(route.tally),
                "nodes_now": None if route.now is None else route.now.nodes,
                "nodes_then": None if route.then is None else route.then.nodes,
                "through_now": None if route.now is None else route.now.through,
                "through_then": None if route.then is None else route.then.through,
            }
            for route in found.routes
        ],
        "senders": [{"emitter": emitter, **_of_tally(tally)} for emitter, tally in found.senders],
    }


def _of_tally(tally: Tally) -> JsonObject:
    return {"events_now": tally.now, "events_then": tally.then, "examples": list(map(str, tally.examples))}
