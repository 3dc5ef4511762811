"""Ends a program on an error of the bus: with a line for people, and an exit code for scripts."""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from xbus.errors import Failed, JournalRefused, JournalUnavailable, LeaseLost, TakenOver, WentBack, XbusError

STOPPED = 0
REFUSED = 1
NOT_NOW = 3
STAYS_DOWN = 4
"""The exit code of a broker that another one has replaced: a supervisor must not start it again."""


@contextmanager
def in_one_line(program: str) -> Iterator[None]:
    """End the program at any error of the bus, with one line on standard error in place of a traceback.

    Raises:
        SystemExit: an error ended the program.
    """
    try:
        yield
    except XbusError as error:
        tell(program, error)
        sys.exit(exit_code(error))


def tell(program: str, error: XbusError) -> None:
    """Write the cause, the next step, and the code to look up; to the log, if that is for programs."""
    if any(getattr(handler.formatter, "is_for_programs", False) for handler in logging.getLogger().handlers):
        logging.getLogger(program).critical("%s", error, extra={"action": "ended", "code": error.code})
        return
    sys.stderr.write(printable(f"{program}: {error} [{error.code}]") + "\n")


def printable(text: str) -> str:
    """Write control characters out, so that what others have said stays on its line and works on no terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Write control characters out, but for the ends of lines and tabs: of a text that may have several lines."""
    return re.sub(r"[^\t\n]+", lambda found: printable(found[0]), text)


def exit_code(error: XbusError) -> int:
    """Give the exit code that tells a script whether a later try makes sense."""
    if isinstance(error, TakenOver):
        return NOT_NOW if isinstance(error, LeaseLost) else STAYS_DOWN
    if isinstance(error, JournalRefused):
        return REFUSED
    return NOT_NOW if isinstance(error, (JournalUnavailable, Failed, WentBack)) else REFUSED
