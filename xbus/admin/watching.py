"""Shows a list again and again on a terminal, in place of the last time, until a person ends it."""

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from typing import Any, TextIO, TypeVar, cast

import click

from xbus.admin.output import Form
from xbus.ending import NOT_NOW, exit_code, printable
from xbus.errors import XbusError

Command = TypeVar("Command", bound=Callable[..., Any])

WATCH_SECONDS = 2.0
"""Seconds between two times. Smaller shows changes sooner, and reads the journal more often."""

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the terminal's other screen and hide its cursor, and back: what was there before comes again. See
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html."""

HOME, CLEAR_TO_END_OF_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Frame(io.StringIO):
    """Takes what a command writes at one time: the command thinks it the terminal, and uses its width and colours.

    Args:
        terminal: the real one.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()


def watch_option(command: Command) -> Command:
    """Add ``--watch`` to a command that lists something; it stands above ``output_option``."""

    @wraps(command)
    def watched(*args: Any, watch: bool, **kwargs: Any) -> object:
        if not watch:
            return command(*args, **kwargs)
        if kwargs.get("as_json") or kwargs.get("form") == Form.JSON or not sys.stdout.isatty():
            raise click.UsageError("--watch is for people at a terminal: it goes with no JSON, and into no pipe")
        show_again(lambda: command(*args, **kwargs), sys.stdout, time.sleep)
        return None

    flag = click.option("--watch", is_flag=True, help="Show it anew every 2 seconds, until you press Ctrl-C.")
    return cast(Command, flag(watched))


def show_again(show: Callable[[], object], terminal: TextIO, pause: Callable[[float], object]) -> None:
    """Show something again and again, until the person presses Ctrl-C.

    While the database is away it says so, and goes on.

    Args:
        show: writes to standard output.
        terminal: where it appears.
        pause: waits for so many seconds.

    Raises:
        XbusError: what a later time would not help.
    """
    terminal.write(ENTER)
    try:
        while True:
            terminal.write(_screen(_shown(show, terminal), shutil.get_terminal_size().lines))
            terminal.flush()
            pause(WATCH_SECONDS)
    except KeyboardInterrupt:
        # That is how a person ends it.
        return
    finally:
        terminal.write(LEAVE)
        terminal.flush()


def _shown(show: Callable[[], object], terminal: TextIO) -> str:
    frame = Frame(terminal)
    try:
        with redirect_stdout(frame):
            show()
    except XbusError as error:
        if exit_code(error) != NOT_NOW:
            raise
        return printable(f"xbus: {error} [{error.code}]")
    return frame.getvalue()


def _screen(text: str, height: int) -> str:
    """Write a whole screen in one go, so that it does not flicker; lines without room are counted."""
    lines = text.splitlines()
    if len(lines) >= height > 1:
        hidden = len(lines) - height + 2
        lines = [*lines[: height - 2], f"... {hidden} more lines"]
    return HOME + "".join(f"{line}{CLEAR_TO_END_OF_LINE}\n" for line in lines) + CLEAR_BELOW
