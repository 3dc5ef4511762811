"""Finds the kind of store that a place needs."""

from pathlib import Path

from xbus.broker.journal.objects.stores import FolderStore, ObjectStore
from xbus.errors import MissingExtra
from xbus.extras import install


def open_store(place: str) -> ObjectStore:
    """Open the store at a place.

    Args:
        place: a folder, or an address such as ``s3://bucket/objects``.

    Raises:
        ConfigurationError: the address can't be used.
        MissingExtra: it needs a library that is not installed.
    """
    folder = local_path(place)
    if folder is not None:
        return FolderStore(folder)
    try:
        from xbus.broker.journal.objects.remote import RemoteStore  # here, as few installations have its library
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"objects at {place} need {error.name}, which is not installed", install("objects")
        ) from error
    return RemoteStore(place)


def local_path(place: str) -> Path | None:
    """Give the folder of a place; None for an address."""
    if place.startswith("file://"):
        return Path(place.removeprefix("file://"))
    return None if "://" in place else Path(place)
