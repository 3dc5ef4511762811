"""Counts the functions of the bus that something calls."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(do: Callable[[], object]) -> int:
    """Count the functions of the bus that are called."""
    calls = 0

    def count(frame: FrameType, kind: str, _: object) -> None:
        nonlocal calls
        calls += kind == "call" and frame.f_globals["__name__"].startswith("xbus.")

    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(None)
    return calls
