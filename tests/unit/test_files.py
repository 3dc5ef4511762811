"""Files as items: what is written is what was read, and nothing else is taken for a file."""

import hashlib
from pathlib import Path

import pytest

from xbus.errors import Refused
from xbus.files import BAD_FILE, IncomingFile, OutgoingFile
from xbus.rpc.codec import pack

CONTENT = bytes(range(256)) * 10
HEAD = pack({"file": "a.pdf", "bytes": 4})
TAIL = pack({"sha256": hashlib.sha256(b"abcd").digest()})


def items_of(path: Path, piece_bytes: int = 1000) -> list[bytes]:
    with OutgoingFile(path, None, piece_bytes) as file:
        return list(iter(file.next_item, None))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "contract.pdf"
    source.write_bytes(CONTENT)
    return source


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, CONTENT[:2000]])
def test_a_file_comes_as_it_went(source: Path, tmp_path: Path, content: bytes) -> None:
    source.write_bytes(content)
    items = items_of(source)
    assert len(items) == 2 + -(-len(content) // 1000)
    target = tmp_path / "in" / "x.pdf"
    target.parent.mkdir()
    target.write_bytes(b"before")
    file = IncomingFile(target, "event")
    file.write(items[:2])
    file.write(items[2:])
    file.complete()
    assert target.read_bytes() == b"before"
    file.publish()
    file.discard()
    assert [path.read_bytes() for path in target.parent.iterdir()] == [content]
    assert file.head is not None
    assert (file.head.name, file.head.size) == ("contract.pdf", len(content))


def test_a_folder_gets_the_name_of_the_sender(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    file = IncomingFile(folder, "event")
    file.write(items_of(source))
    file.complete()
    file.publish()
    assert [path.name for path in folder.iterdir()] == ["contract.pdf"]


@pytest.mark.parametrize("name", ["", "..", "a/", "/etc/.profile", "a\0b", "x" * 300, "c:\\dir\\"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    file = IncomingFile(tmp_path, "event")
    with pytest.raises(Refused) as caught:
        file.write([pack({"file": name, "bytes": 0})])
    assert caught.value.code == BAD_FILE
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_folders_before_a_name_are_left_out(tmp_path: Path) -> None:
    file = IncomingFile(tmp_path, "event")
    file.write([pack({"file": "../../etc/passwd", "bytes": 0})])
    assert file.path == tmp_path / "passwd"
    file.discard()


@pytest.mark.parametrize(
    "items",
    [
        [],
        [b"no file"],
        [pack({"file": 7, "bytes": 4})],
        [pack({"file": "a", "bytes": -1})],
        [HEAD],
        [HEAD, b"abc"],
        [HEAD, b"abcd"],
        [HEAD, b"abcd", b"more"],
        [HEAD, b"abcde"],
        [HEAD, b"abcx", TAIL],
        [HEAD, b"abcd", TAIL, b"more"],
        [HEAD, b"abcd", TAIL, HEAD],
    ],
)
def test_what_is_no_whole_file_is_refused(tmp_path: Path, items: list[bytes]) -> None:
    file = IncomingFile(tmp_path / "x", "event")
    with pytest.raises(Refused) as caught:
        file.write(items)
        file.complete()
    assert caught.value.code == BAD_FILE
    file.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [CONTENT[:100], CONTENT + b"more"])
def test_a_file_that_changes_while_it_is_read_is_refused(source: Path, change: bytes) -> None:
    with OutgoingFile(source, None, 1000) as file:
        file.next_item()
        source.write_bytes(change)
        with pytest.raises(Refused) as caught:
            while file.next_item() is not None:
                pass
    assert caught.value.code == BAD_FILE


def test_only_files_are_sent(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        OutgoingFile(tmp_path)
    with pytest.raises(FileNotFoundError):
        OutgoingFile(tmp_path / "nothing")
    with pytest.raises(Refused, match="not a regular file"):
        OutgoingFile("/dev/null")
