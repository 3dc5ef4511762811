"""The ``xbus`` command: the table of its commands. A new command is a module in ``commands`` and a line here."""

import click

from xbus.admin.commands.apply import apply
from xbus.admin.commands.clearing import clearing
from xbus.admin.commands.descriptor import descriptor
from xbus.admin.commands.emit import emit
from xbus.admin.commands.envelope import envelope
from xbus.admin.commands.export import export
from xbus.admin.commands.failure import failure
from xbus.admin.commands.health import health
from xbus.admin.commands.import_legacy import import_legacy
from xbus.admin.commands.outbox import outbox
from xbus.admin.commands.parked import parked
from xbus.admin.commands.password import password
from xbus.admin.commands.recipient import recipient
from xbus.admin.program import Program


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="xbus", prog_name="xbus")
def main() -> None:
    """Administer and try an Xbus.

    \b
    Exit codes:
      0  done
      1  refused: something in the input or on the bus must be corrected first
      2  the command line itself is wrong
      3  not possible now: the database or the broker can't be reached; the same may go well later
    """


for command in (
    apply,
    clearing,
    descriptor,
    emit,
    envelope,
    export,
    failure,
    health,
    import_legacy,
    outbox,
    parked,
    password,
    recipient,
):
    main.add_command(command)
