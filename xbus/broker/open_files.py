"""Warns of places of the journal that others on this machine may read."""

import logging
from collections.abc import Iterator
from pathlib import Path

from xbus import private_files
from xbus.broker.journal.bulk import side_files
from xbus.broker.journal.database.engine import file_of, parse_url
from xbus.broker.journal.objects.opening import local_path

log = logging.getLogger(__name__)


def tell_open_files(url: str, objects: str) -> None:
    """Warn of what others may read, with the command that is its cure.

    Args:
        url: of the database.
        objects: the place of the objects; empty for none.
    """
    for cure in _cures(url, objects):
        extra = {"action": "open_to_others"}
        log.warning("others may read the journal; have its owner run: %s", cure, extra=extra)


def _cures(url: str, objects: str) -> Iterator[str]:
    file = file_of(url)
    if file is not None and any(private_files.is_open_to_others(f"{file}{suffix}") for suffix in ("", "-wal", "-shm")):
        yield f"chmod 600 {file} {file}-*"  # not .bulk, which is a folder
    for folder in _folders(url, objects):
        if private_files.is_open_to_others(folder):
            yield f"chmod 700 {folder}"


def _folders(url: str, objects: str) -> Iterator[Path]:
    if side := side_files.folder_of(parse_url(url)):
        yield side
    if objects and (folder := local_path(objects)):
        yield folder
