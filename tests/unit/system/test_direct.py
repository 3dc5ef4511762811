"""Files that are written and read past the page cache."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xbus.system.direct import BUFFER_BYTES, DirectBuffers, DirectFile, read_direct


@pytest.fixture(params=["allowed", "not opened", "not written"])
def _file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a file system that allows it, one that opens no such file, or one whose blocks are larger."""
    if request.param == "not opened":
        real_open = os.open

        def opened(path: str, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "Invalid argument")
            return real_open(path, flags, mode)

        monkeypatch.setattr(os, "open", opened)
    elif request.param == "not written":
        real_write, real_read = os.write, os.readv

        def check(descriptor: int) -> None:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, "Invalid argument")

        def written(descriptor: int, data: memoryview) -> int:
            check(descriptor)
            return real_write(descriptor, data)

        def read(descriptor: int, views: list[memoryview]) -> int:
            check(descriptor)
            return real_read(descriptor, views)

        monkeypatch.setattr(os, "write", written)
        monkeypatch.setattr(os, "readv", read)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, BUFFER_BYTES - 1, BUFFER_BYTES, 2 * BUFFER_BYTES + 5])
@pytest.mark.usefixtures("_file_system")
def test_a_file_has_what_was_written_whatever_the_file_system_allows(tmp_path: Path, size: int) -> None:
    path, data, buffers = tmp_path / "file", os.urandom(size), DirectBuffers()
    path.write_bytes(b"what was there before" * 1000)
    with buffers.lend() as buffer, DirectFile(path, buffer=buffer) as file:
        file.write(data[: size // 3])
        file.write(data[size // 3 :])
        file.sync()
    assert path.read_bytes() == data
    with buffers.lend() as buffer:
        assert read_direct(path, buffer) == data


@given(st.lists(st.integers(0, 20_000), max_size=12))
@settings(max_examples=20)
def test_pieces_of_any_size_follow_each_other(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    pieces = [os.urandom(size) for size in sizes]
    with DirectFile(path) as file:
        for piece in pieces:
            file.write(piece)
        file.sync()
    assert path.read_bytes() == b"".join(pieces)


def test_buffers_are_used_again_and_no_more_are_kept_than_asked() -> None:
    buffers = DirectBuffers(1)
    with buffers.lend() as first, buffers.lend() as second:
        assert first is not second
    with buffers.lend() as again:
        assert again is second
    with buffers.lend() as again:
        assert again is second


def test_a_full_disk_is_told_and_the_file_can_be_closed() -> None:
    with pytest.raises(OSError, match="No space left") as told, DirectFile("/dev/full") as file:
        file.write(b"a piece")
        file.sync()
    assert told.value.errno == errno.ENOSPC
