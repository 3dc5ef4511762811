"""The ``xbus`` command: the table of its commands. A new one is a function in ``commands`` and a line here."""

import click

from xbus import extras
from xbus.admin.program import Program

COMMANDS = (
    "audit",
    "bot",
    "broker",
    "bus.apply",
    "bus.edit",
    "bus.export",
    "bus.plan",
    "clearing",
    "completion",
    "config",
    "database",
    "descriptor",
    "emit",
    "envelope",
    "failure",
    "find",
    "fsck",
    "doctor",
    "health",
    "import_legacy",
    "journal",
    "keys",
    "outbox",
    "parked",
    "login.password",
    "pausing.drain",
    "pausing.pause",
    "pausing.resume",
    "person",
    "find.read",
    "reader",
    "recipient",
    "replay",
    "login.session",
    "login.token",
    "top",
    "why.trace",
    "subscription",
    "type",
    "why",
)
"""Each is imported when it is asked for: all of them together take half a second."""


@click.group(cls=Program, own=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=extras.DISTRIBUTION, prog_name="xbus")
def main() -> None:
    """Administer and try an Xbus.

    \b
    Exit codes:
      0  done
      1  refused: something in the input or on the bus must be corrected first
      2  the command line itself is wrong
      3  not possible now: the database or the broker can't be reached; the same may go well later
    """
