"""Makes durable what the names in a folder say."""

import os


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Have the entries of a folder on the disk: a file that is new there, or was renamed, survives a crash.

    Raises:
        OSError: the system can't do it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
