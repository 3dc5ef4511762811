"""Notes each function and line of the product that a program runs, with its time; a folder for ``PYTHONPATH``.

``XBUS_TRACE`` names the file to which all is written when the program ends. Nothing of the product is imported here, as
Python runs this file before the program begins.
"""

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = str(Path(__file__).parents[3] / "xbus") + os.sep

Noted = tuple[float, str, str, int]


def _trace(target: Path) -> None:
    noted: list[Noted] = []

    def note(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return None
        if event == "call":
            noted.append((time.time(), code.co_filename[len(SOURCE) :], code.co_qualname, frame.f_lineno))
        elif event == "line":
            noted.append((time.time(), code.co_filename[len(SOURCE) :], "", frame.f_lineno))
        return note

    def write() -> None:
        sys.settrace(None)
        threading.settrace(None)
        lines = [f"{at}\t{file}\t{function}\t{line}\n" for at, file, function, line in [*noted]]
        target.write_text("".join(lines), encoding="utf-8")

    atexit.register(write)
    threading.settrace(note)
    sys.settrace(note)


if "XBUS_TRACE" in os.environ:
    _trace(Path(os.environ["XBUS_TRACE"]))
