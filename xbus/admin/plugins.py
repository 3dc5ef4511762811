"""Commands of ``xbus`` that other packages bring, by the entry-point group ``xbus.commands``."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

import click

from xbus import extras
from xbus.errors import ConfigurationError

GROUP = "xbus.commands"

ABOVE = (EntryPoint("flow", "xbus.testing.flow.command:flow", GROUP),)
"""Commands of this distribution in packages that stand on this one, which therefore can't import them."""


def found() -> dict[str, EntryPoint]:
    """Find the installed commands by name, without importing any."""
    return {entry.name: entry for entry in (*ABOVE, *entry_points(group=GROUP))}


def load(entry: EntryPoint) -> click.Command:
    """Load a command; if it lacks a package, one that says so."""
    try:
        command = entry.load()
    except ImportError as error:
        return _missing(entry, error.name.partition(".")[0] if error.name else str(error))
    if not isinstance(command, click.Command):
        raise ConfigurationError(f"{entry.value} is no command of click", f"see the entry points of group {GROUP}")
    return command


def _missing(entry: EntryPoint, module: str) -> click.Command:
    package = entry.dist.name if entry.dist is not None else extras.DISTRIBUTION
    cure = extras.install(",".join(entry.extras), package) if entry.extras else f"pip install '{package}'"

    def refuse(arguments: Sequence[str]) -> None:
        raise ConfigurationError(f"xbus {entry.name} needs {module}, which is not installed", cure)

    return click.Command(
        entry.name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        help=f"Not installed: {cure}",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
