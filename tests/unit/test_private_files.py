"""Files that are made for their owner alone."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from xbus import private_files
from xbus.emitter.outbox import Outbox

TRY_TO_LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_a_new_file_is_private_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("content")
    old.chmod(0o644)
    for path in (new, old, tmp_path / "nowhere" / "new"):
        private_files.prepare(path)
    assert (new.stat().st_mode & 0o777, old.stat().st_mode & 0o777, old.read_text()) == (0o600, 0o644, "content")
    assert [private_files.is_open_to_others(path) for path in (new, old, tmp_path / "nowhere")] == [False, True, False]


def test_locks_on_a_file_outlive_its_preparation(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.touch()
    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        private_files.prepare(path)
        other = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, path], capture_output=True, check=False)
        assert b"BlockingIOError" in other.stderr


def test_an_outbox_that_others_may_read_is_told_with_its_cure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "orders.outbox"
    Outbox(path).close()
    assert not caplog.messages
    path.chmod(0o640)
    Outbox(path).close()
    assert caplog.messages == [f"others may read the outbox; have its owner run: chmod 600 {path}*"]
