"""The lock that lets one process at a time send from an outbox."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from xbus import private_files
from xbus.emitter.forks import tell_of_forks
from xbus.errors import Failed, Refused


class _LockFile:
    """The file beside an outbox on which the lock is.

    Args:
        file: opened.
    """

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        tell_of_forks(self)

    def forked(self) -> None:
        """Close the copy: the lock would last as long as the child, also where nobody sends any more."""
        self.file.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from sending from an outbox. The lock ends with the process, however that ends.

    Raises:
        Refused: another one sends from it (``outbox_in_use``).
        Failed: the file beside the outbox can't be written (``outbox_failed``).
    """
    try:
        lock = _LockFile(open(f"{path}.lock", "a+", opener=private_files.opener))  # noqa: SIM115
    except OSError as error:
        raise Failed(
            f"{path}.lock can't be written: {error}", "check the permissions of its folder", code="outbox_failed"
        ) from error
    with lock.file as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Refused(
                f"process {file.read().strip()} sends from the outbox {path}",
                "give each emitter and each process an outbox of its own, or end that process first",
                code="outbox_in_use",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Unlocked by itself: a child may not have come to close its copy yet. In a child the file is closed.
            if not file.closed:
                fcntl.flock(file, fcntl.LOCK_UN)
