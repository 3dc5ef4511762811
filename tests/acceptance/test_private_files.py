"""Files of the bus are their owner's alone: they hold what it carries."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon, Options
from tests.support.processes import run, script
from xbus.emitter import Emitter

PRIVATE = 0o600


@pytest.fixture(autouse=True)
def careless() -> Iterator[None]:
    """A user whose new files everybody may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in sorted(folder.iterdir())}


@contextmanager
def running(folder: Path, url: str, options: Options | None = None) -> Iterator[Daemon]:
    daemon = Daemon(folder, url, options)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


def test_journal_outbox_and_ready_file_are_private(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal' / 'xbus.db'}"
    (tmp_path / "journal").mkdir()
    assert run(script("setup_xbusbroker"), "-c", str(_configured(tmp_path, url))).returncode == 0
    add_bus(url, {"test_event": {"c": []}})
    with running(tmp_path / "daemon", url) as daemon:
        outbox = tmp_path / "outbox" / "orders.outbox"
        outbox.parent.mkdir()
        with Emitter(daemon.front, "emitter_1", PASSWORD, outbox=outbox) as emitter:
            emitter.put("test_event", [1])
            found = modes(tmp_path / "journal") | modes(outbox.parent)
        found |= {"ready.json": modes(tmp_path / "daemon")["ready.json"]}
        assert {"xbus.db", "xbus.db-wal", "orders.outbox", "ready.json"} <= found.keys()
        assert {name: oct(mode) for name, mode in found.items() if mode != PRIVATE} == {}
    assert "others may read the journal" not in daemon.log


def test_a_journal_that_others_may_read_is_told_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "xbus.db"
    path.touch(mode=0o644)
    objects = tmp_path / "objects"
    for folder in (objects, tmp_path / "xbus.db.bulk"):
        folder.mkdir(mode=0o755)
    url = f"sqlite:///{path}"
    assert run(script("setup_xbusbroker"), "-c", str(_configured(tmp_path, url))).returncode == 0
    with running(tmp_path / "daemon", url, {"journal": {"objects": objects}}) as daemon:
        for cure in (f"chmod 600 {path} {path}-*", f"chmod 700 {path}.bulk", f"chmod 700 {objects}"):
            assert f"others may read the journal; have its owner run: {cure} " in daemon.log
    assert path.stat().st_mode & 0o777 == 0o644


def _configured(folder: Path, url: str) -> Path:
    path = folder / "config.ini"
    path.write_text(f"[database]\nsqlalchemy.dburi = {url}\n")
    return path
