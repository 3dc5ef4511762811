"""Shows progress bars on standard error; log lines appear above them."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from xbus.ending import printable
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
