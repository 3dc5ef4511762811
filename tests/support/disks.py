"""Disks that are soon full: file systems in memory, which only root can mount."""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

import psycopg2
import pytest

from tests.support import postgres

MEBIBYTE = 1024 * 1024


class SmallDisk:
    """A file system of its own.

    Args:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def used(self) -> int:
        """How many bytes its files take."""
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def resize(self, size: int) -> None:
        """Have it take so many bytes, as when a disk is exchanged for a larger one."""
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)

    def fill(self) -> Path:
        """Leave no room; it is there again when the file that is given is removed."""
        filler = self.folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(MEBIBYTE))
        return filler


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a file system of so many bytes at a folder, which is made; the test is skipped where that can't be done."""
    with mounted(folder, size) as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        yield disk


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[SmallDisk | None]:
    """Mount such a file system; None where that can't be done, and then there is no folder."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        folder.rmdir()
        yield None
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


@contextmanager
def on_small_disk(url: str, size: int, *tables: str) -> Iterator[SmallDisk]:
    """Have a database of a private PostgreSQL on a small disk, or only some of its tables; it is thrown away then."""
    parts = urlsplit(url.replace("+psycopg2", ""))
    name = parts.path.removeprefix("/")
    # Not in the test's own folder, which the account of PostgreSQL can't enter.
    with (
        small_disk(Path("/tmp") / f"xbus-disk-{secrets.token_hex(4)}", size) as disk,
        _connected(parts, "postgres") as do,
    ):
        disk.folder.chmod(0o700)
        if (account := postgres.account()) is not None:
            os.chown(disk.folder, account.pw_uid, account.pw_gid)
        do(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
        try:
            if tables:
                with _connected(parts, name) as do_there:
                    for table in tables:
                        do_there(f"ALTER TABLE {table} SET TABLESPACE small")
            else:
                do(f'ALTER DATABASE "{name}" SET TABLESPACE small')
            yield disk
        finally:
            do(f'DROP DATABASE "{name}" WITH (FORCE)')
            do("DROP TABLESPACE small")


@contextmanager
def _connected(parts: SplitResult, name: str) -> Iterator[Callable[[str], None]]:
    """Carries out statements in a database of the server."""
    with closing(psycopg2.connect(urlunsplit(parts._replace(path=f"/{name}")))) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor.execute
