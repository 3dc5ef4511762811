"""Shows on a terminal, while a command works, how far it is, or the same list anew every 2 seconds."""

import io
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

import click

from xbus.ending import NOT_NOW, exit_code, printable
from xbus.errors import XbusError
from xbus.logs import CLEAR_LINE, clears_lines

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


class AboveTheBar(logging.Handler):
    """Writes log records above a progress bar: it clears the bar, writes a line, and draws the bar again.

    Args:
        bar: the bar, on a terminal.
        formatter: makes a line of a record.
    """

    def __init__(self, bar: "ProgressBar[int]", formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._bar = bar
        if formatter is not None:
            self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        tell(line.removeprefix(CLEAR_LINE))
        # The bar draws a line only where it differs from its last one.
        self._bar._last_line = None
        self._bar.render_progress()


@contextmanager
def progress(length: int, label: str) -> Iterator["ProgressBar[int]"]:
    """Show how far a work is, on a terminal: ``bar.update(steps)``. Log lines do not tear the bar.

    Args:
        length: the number of steps.
        label: names the work, also where no terminal is there.
    """
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        if not sys.stderr.isatty():
            yield bar
            return
        root = logging.getLogger()
        torn = [handler for handler in root.handlers if _writes_there(handler)]
        above = AboveTheBar(bar, torn[0].formatter if torn else None)
        for handler in torn:
            root.removeHandler(handler)
        if torn or not root.handlers:
            root.addHandler(above)
        try:
            yield bar
        finally:
            root.removeHandler(above)
            for handler in torn:
                root.addHandler(handler)


@contextmanager
def shown_on_terminal(count: Callable[[], int], label: str) -> Iterator[Callable[[int], None]]:
    """Show the progress of a work, on a terminal alone; give a function that takes new steps.

    Args:
        count: tells about how many steps it has, on a terminal: the bar stays a step before its end until the end.
        label: names the work.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    length = max(1, count())
    with progress(length, label) as bar:
        yield lambda steps: bar.update(min(steps, length - 1 - bar.pos))
        bar.update(length - bar.pos)


def _writes_there(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout)


def tell(sentence: str) -> None:
    """Write a line on standard error; on a terminal it takes the place of a bar."""
    click.echo(f"{CLEAR_LINE if clears_lines() else ''}{printable(sentence)}", err=True)


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
