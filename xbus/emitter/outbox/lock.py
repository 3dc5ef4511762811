"""The lock that lets one process at a time send from an outbox."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from xbus.errors import Failed, Refused


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from sending from an outbox. The lock ends with the process, however that ends.

    Raises:
        Refused: another one sends from it (``outbox_in_use``).
        Failed: the file beside the outbox can't be written (``outbox_failed``).
    """
    try:
        file: IO[str] = open(f"{path}.lock", "a+")  # noqa: SIM115
    except OSError as error:
        raise Failed(
            f"{path}.lock can't be written: {error}", "see who may write there", code="outbox_failed"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Refused(
                f"process {file.read().strip()} sends from the outbox {path}",
                "give each emitter an outbox of its own, or end that process first",
                code="outbox_in_use",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
