"""An object store as the journal sees it, in a folder or elsewhere. Every call may block: none runs on the loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from xbus.errors import JournalError, JournalUnavailable

UNAVAILABLE = "objects_unavailable"
"""The code of the error of a store that can't be read or written now."""

MISSING = "object_missing"
"""The code of the error of an object that a segment refers to, and that its store does not have."""

MARK = "xbus-objects.json"
"""The file by which a store tells to which journal it belongs."""


class ListedObject(NamedTuple):
    """An object that a store has; ``written_at`` in seconds since 1970, by the clock of the store."""

    hash: bytes
    written_at: float


class ObjectStore(Protocol):
    """Keeps objects by the SHA-256 of their data.

    Every method raises JournalUnavailable (``objects_unavailable``) where the store can't do it now.
    """

    place: str

    def put(self, digest: bytes, data: bytes) -> None:
        """Make an object durable; one that is there already stays, if it has this data."""

    def get(self, digest: bytes) -> bytes:
        """Give an object as it is stored.

        Raises:
            JournalError: it is not there (``object_missing``).
        """

    def remove(self, digest: bytes) -> None:
        """Remove an object; it may not be there."""

    def listed(self) -> Iterator[ListedObject]:
        """Iterate over all objects, and clean up what broken-off writes have left."""

    def read_mark(self) -> bytes | None:
        """Give the content of the file that tells whose the store is; None without it."""

    def write_mark(self, content: bytes) -> None:
        """Write that file, as a whole."""

    def is_empty(self) -> bool:
        """Check whether the store is empty, so that a journal may claim it; a missing store is empty, too."""


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turn errors of the operating system into ours.

    Raises:
        JournalUnavailable: the store can't do it now (``objects_unavailable``).
    """
    try:
        yield
    except OSError as error:
        raise JournalUnavailable(
            f"the object store {place} can't be used now ({error.strerror or error})",
            "see that it is there, has room, and belongs to the broker's user",
            code=UNAVAILABLE,
        ) from error


def away(place: str) -> JournalUnavailable:
    """Make the error for a store without its mark: all of it is away, not one object."""
    return JournalUnavailable(
        f"the object store {place} has no {MARK}, so nothing of it is there now",
        "see that it is mounted, or restore all of it from a copy",
        code=UNAVAILABLE,
    )


def missing(place: str, digest: bytes) -> JournalError:
    """Make the error for an object that is not there."""
    return JournalError(
        f"the object {digest.hex()} is not in {place}",
        "see that the store is mounted and whole, or restore the object from a copy",
        code=MISSING,
    )
