"""The frame of all commands: it finds them, reads the configuration, and turns an error into a line and a code."""

import errno
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from xbus import ending, extras
from xbus.errors import ConfigurationError, XbusError

GROUP = "xbus.commands"

ABOVE = (EntryPoint("flow", "xbus.testing.flow.command:flow", GROUP),)
"""Commands of this distribution in packages that stand on this one, which therefore can't import them."""


def plugins_found() -> dict[str, EntryPoint]:
    """Find the installed commands by name, without importing any."""
    return {entry.name: entry for entry in (*ABOVE, *entry_points(group=GROUP))}


def load_plugin(entry: EntryPoint) -> click.Command:
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


class Careful(click.Command):
    """A command that does harm where somebody follows a hint: it proposes no option for one that it doesn't know."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.NoSuchOption(error.option_name, ctx=error.ctx) from None


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(command.help or "")) for name, command in found])


def _first_sentence(text: str) -> str:
    paragraph, _, _ = text.strip().partition("\n\n")
    return re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]


class Program(CommandGroup):
    """A group of commands that reports any error of the bus in one line, with its cause and next step.

    Beside its own it has the commands that other packages bring. It imports each at its first use.

    Args:
        own: its own commands in ``xbus.admin.commands``, as ``module.command``, or as one name for both.
    """

    def __init__(self, *args: Any, own: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own = {each.rpartition(".")[2].replace("_", "-"): each for each in own}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._own, *super().list_commands(ctx), *plugins_found()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = self._own.get(cmd_name)
        if own is not None:
            module, _, name = own.rpartition(".")
            command: click.Command = getattr(import_module(f"xbus.admin.commands.{module or name}"), name)
            return command
        added = super().get_command(ctx, cmd_name)
        if added is not None:
            return added
        entry = plugins_found().get(cmd_name)
        return None if entry is None else load_plugin(entry)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _printable_refusals():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with ending.in_one_line("xbus"), _printable_refusals(), _room_for_output():
            return super().invoke(ctx)


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The errors of writing on a full disk, and on a terminal that is closed."""


@contextmanager
def _room_for_output() -> Iterator[None]:
    """End a command in one line that can't write its output. click ends one whose reader has gone, as in ``| head``.

    Raises:
        XbusError: in place of the error of writing.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        # Python would write what is left once more at its end, and complain again.
        sys.stdout = None
        cause = f"the output can't be written ({error.strerror})"
        raise XbusError(cause, "make room, or write it elsewhere", code="unwritable_output") from error


@contextmanager
def _printable_refusals() -> Iterator[None]:
    """Have click show nothing of the command line that a terminal obeys."""
    try:
        yield
    except click.ClickException as error:
        error.message = ending.printable_lines(error.message)  # type: ignore[misc]  # click shows it as it is
        raise


def digits(text: str) -> str:
    """Give the digits of the id of an envelope."""
    return text.replace("-", "").lower()


class EnvelopeId(click.ParamType[str]):
    """The id of an envelope, or the digits with which only this one begins; the command gets the digits."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = digits(str(value))
        if not _DIGITS.fullmatch(found):
            self.fail(f"{value!r} is neither the id of an envelope nor its first digits, 4 or more", param, ctx)
        return found


_DIGITS = re.compile(r"[0-9a-f]{4,32}")


class FiniteRange(click.FloatRange):
    """A number within bounds, neither infinite nor ``nan``, which no bound keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


ROW_ID = click.IntRange(1, 2**63 - 1)
"""The id of a row, as the database counts them."""
