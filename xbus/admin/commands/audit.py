"""``xbus audit``: shows who did what to the bus, verifies the chain of hashes, and removes old rows."""

import re
from datetime import datetime
from typing import Any

import click

from xbus.admin.arguments import LIMIT, MOMENT, REASON
from xbus.admin.objects import of_audit_row, of_verification
from xbus.admin.output import Column, Output, Row, counted, name_column, one_json
from xbus.admin.program import CommandGroup
from xbus.admin.progress import shown_on_terminal
from xbus.admin.signatures import YES, CommandBus, command, confirm, option, shown
from xbus.broker.journal.audit import (
    AuditFilters,
    AuditRow,
    ChainHead,
    chain_length,
    count_older,
    cut_older,
    hang_all,
    list_acts,
)
from xbus.broker.journal.audit import verify as verify_chain
from xbus.ending import REFUSED

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


class Head(click.ParamType[ChainHead]):
    """The end of the chain as ``xbus audit verify`` prints it: a number and a hash."""

    name = "head"
    metavar = "ROW:HASH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ChainHead:
        found = _HEAD.fullmatch(str(value).lower())
        if found is None:
            self.fail(f"{value} is no head like 17:9f86d081..., as xbus audit verify prints it", param, ctx)
        return ChainHead(int(found[1]), bytes.fromhex(found[2]))


HEAD = Head()


@click.group(cls=CommandGroup)
def audit() -> None:
    """See who did what to the bus, and verify that nobody has changed it since."""


@command(audit)
def list_(
    bus: CommandBus,
    since: datetime | None = option("Only since: 2d, 12h, 30min (ago), a date or a time.", MOMENT),
    who: str | None = option("Only by this login or user.", metavar="NAME"),
    action: str | None = option("Only this action, such as changed or login_refused.", metavar="WORD"),
    object_: str | None = option("Only what has this text in its object, such as a login.", longest=1000),
    before: int | None = option("Only rows below this number.", click.IntRange(1), metavar="ROW"),
    limit: int = LIMIT,
    output: Output = shown("row"),
) -> None:
    """List what people and programs did, the newest first.

    A row without a number waits for the chain; a running broker gives it one within seconds.
    """
    filters = AuditFilters(since, who, action, object_, before)
    found = bus.read(lambda connection: list_acts(connection, filters, limit))
    is_cut = len(found) == limit and found[-1].number is not None
    after = {"before": found[-1].number} if is_cut else None
    output.listing(found, of_audit_row, (_row(each, output) for each in found), "No rows.", after=after)


def _row(found: AuditRow, output: Output) -> Row:
    act = found.act
    return {
        Column("ROW", to_right=True): found.number,
        "AT": output.when(act.at),
        name_column("WHO"): act.who,
        name_column("FROM"): act.origin or None,
        "ACTION": act.action,
        Column("OBJECT", narrows=20): act.object,
        Column("BEFORE", narrows=8): act.before or None,
        Column("AFTER", narrows=8): act.after or None,
        Column("REASON", narrows=8): act.reason or None,
    }


@command(audit)
def verify(
    bus: CommandBus,
    head: ChainHead | None = option("An end of the chain that was noted before.", HEAD),
    output: Output = shown(wide=False),
) -> None:
    """Compute the hashes of all rows anew, and name each row that was changed, removed or put elsewhere.

    Note the head that it prints at a place out of the bus's reach, and give it the next time: without it, nobody can
    tell that the newest rows are missing, or that somebody wrote the whole chain anew.
    """
    with bus.writing() as connection:
        hang_all(connection)
    with bus.reading() as connection, shown_on_terminal(lambda: chain_length(connection), "Verifying") as tell:
        found = verify_chain(connection, head, tell)
    if output.as_json:
        click.echo(one_json(of_verification(found)))
    else:
        for fault in found.faults:
            click.echo(fault)
        if found.cut.number:
            click.echo(f"Rows up to {found.cut.number} were cut off.")
        if head is not None and head.number < found.cut.number:
            click.echo(f"The noted row {head.number} is among them: note the head below in its place.")
        told = "Nobody has changed them." if not found.faults else "The audit was tampered with."
        click.echo(f"Verified {counted(found.rows, 'row')}. {told}")
        click.echo(f"Head: {found.head}")
    if found.faults:
        click.get_current_context().exit(REFUSED)


@command(audit)
def cut(
    bus: CommandBus,
    before: datetime = option("Remove what is older: 400d, or a date.", MOMENT, required=True),
    reason: str = REASON,
    yes: bool = YES,
) -> None:
    """Remove old rows for good, after a look whether somebody has changed them.

    The chain keeps the hash of the last removed row, so the others can still be verified.
    """
    older = bus.read(lambda connection: count_older(connection, before))
    if not older:
        click.echo("Nothing is so old.")
        return
    confirm(f"Remove {counted(older, 'row')} of the audit for good?", unless=yes)
    with bus.writing() as connection:
        found = cut_older(connection, before, reason, bus.now())
    if found is not None:
        click.echo(f"Removed {counted(found.rows, 'row')}. The last of them was {found.last}")
