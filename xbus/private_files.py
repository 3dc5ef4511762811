"""Files and folders that their owner alone may read, as they hold what the bus carries."""

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def opener(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=opener)``; one that is new is its owner's alone."""
    return os.open(path, flags, FILE_MODE)


def prepare(path: str | Path) -> None:
    """Make an empty file for its owner; one that is there stays as it is.

    The program that opens the file reports why it can't be made. One that is there must not even be opened: by closing
    it this process would lose all its locks on it (fcntl(2)), among them those of SQLite.
    """
    with suppress(OSError):
        os.close(opener(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def is_open_to_others(path: str | Path) -> bool:
    """Check whether anybody but its owner may read or change a file or a folder; False if it is missing."""
    try:
        return bool(os.stat(path).st_mode & _OTHERS)
    except OSError:
        return False
