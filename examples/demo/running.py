"""What each demo does around its work: it says how it ended, empties its folder, and measures how long all took."""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from examples.demo.failure import DemoFailed
from examples.demo.program import INTERRUPTIONS
from xbus.errors import XbusError


def run(demonstrate: Callable[[], bool]) -> NoReturn:
    """Carry a demo out, and end this program with exit code 0, 1 or 130.

    Args:
        demonstrate: the demo; whether everything arrived.
    """
    for number in INTERRUPTIONS:
        signal.signal(number, _interrupt)
    try:
        is_right = demonstrate()
    except (DemoFailed, XbusError) as error:
        click.echo(f"The demo failed: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("Interrupted; all programs are ended.", err=True)
        sys.exit(130)
    sys.exit(0 if is_right else 1)


class Stopwatch:
    """Measures the parts of the demo.

    Attributes:
        seconds: how long each took.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Measure what happens in the block."""
        started = time.monotonic()
        yield
        self.seconds[part] = time.monotonic() - started


def emptied(folder: Path) -> Path:
    """The folder, without what an earlier demo left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
