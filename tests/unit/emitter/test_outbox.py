"""The outbox file: whole envelopes in their order, whatever was going on when it was last used."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from xbus.emitter.outbox import ENVELOPE_BYTES, Outbox, locked
from xbus.emitter.outbox.box import QueuedPut
from xbus.emitter.puts import NewPut
from xbus.envelope import EnvelopeHead
from xbus.errors import Failed, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import pack_item

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.outbox"


@pytest.fixture
def outbox(path: Path) -> Iterator[Outbox]:
    outbox = Outbox(path)
    yield outbox
    outbox.close()


def begin(outbox: Outbox, name: str, *batches: bytes) -> None:
    outbox.start_envelope(name, f"key {name}", None)
    outbox.start_event(name, f"event of {name}", "notes", 3)
    for index, data in enumerate(batches):
        outbox.append(name, f"event of {name}", index, 1, data)


def queue(outbox: Outbox, name: str, *batches: bytes) -> tuple[int, int]:
    begin(outbox, name, *batches)
    return outbox.end_envelope(name, NOW)


def waiting(outbox: Outbox) -> list[str]:
    """Take all that waits, in order."""
    names = []
    while (first := outbox.first_waiting()) is not None:
        names.append(first.envelope_id)
        outbox.remove(first.envelope_id)
    return names


def test_what_was_ended_waits_with_all_of_it(outbox: Outbox) -> None:
    assert queue(outbox, "a", b"one", b"two") == (1, 2)
    first = outbox.first_waiting()
    assert first is not None
    assert (first.envelope_id, first.key, first.ordering_key, first.place) == ("a", "key a", None, 1)
    (event,) = outbox.events("a")
    assert (event.type_name, event.estimate) == ("notes", 3)
    assert [outbox.batch(event.event_id, index) for index in range(3)] == [(1, b"one"), (1, b"two"), None]


def whole(name: str, *items: bytes, size: int = 0) -> QueuedPut:
    head = EnvelopeHead(f"client {name}", f"key {name}", b"headers")
    data = b"".join(map(pack_item, items)) + b"x" * size
    return QueuedPut(name, f"event of {name}", NewPut("notes", len(items), data, head, EventTags(b"tags", "p")))


def test_whole_envelopes_come_out_as_they_went_in(outbox: Outbox) -> None:
    queued = [whole("a", b"one", b"two"), whole("b"), whole("c", b"three")]
    assert outbox.queue(queued, NOW) == [None] * 3
    assert outbox.small_ones(10, 10_000) == queued
    assert outbox.small_ones(2, 10_000) == queued[:2]
    assert waiting(outbox) == ["a", "b", "c"]


def test_small_ones_end_at_the_first_that_is_not_small(outbox: Outbox) -> None:
    outbox.queue([whole("a", b"one")], NOW)
    queue(outbox, "b", b"one", b"two")
    outbox.queue([whole("c", b"one"), whole("d", b"one", size=5000), whole("e", b"one")], NOW)

    def names() -> list[str]:
        return [envelope.envelope_id for envelope in outbox.small_ones(10, 5000)]

    assert names() == ["a"]
    outbox.remove("a")
    assert names() == []
    outbox.remove("b")
    assert names() == ["c"]
    outbox.remove("c")
    assert names() == []


def test_small_ones_end_where_their_bytes_do(outbox: Outbox) -> None:
    outbox.queue([whole(name, b"one") for name in "abc"], NOW)
    size = ENVELOPE_BYTES + 100
    assert [len(outbox.small_ones(10, most)) for most in (size - 101, size, 2 * size, 3 * size)] == [0, 1, 2, 3]


def test_a_whole_envelope_that_is_too_much_leaves_the_others(path: Path) -> None:
    outbox = Outbox(path, max_bytes=3 * ENVELOPE_BYTES)
    first, large, last = outbox.queue([whole("a", b"one"), whole("b", b"two", size=5000), whole("c", b"three")], NOW)
    assert (first, last) == (None, None)
    assert large is not None
    assert large.code == "outbox_full"
    assert waiting(outbox) == ["a", "c"]
    assert outbox.queue([whole("d", b"four"), whole("e", b"five")], NOW) == [None, None]
    outbox.close()


def test_what_can_not_be_written_keeps_none_of_a_group(outbox: Outbox) -> None:
    outbox.queue([whole("a", b"one")], NOW)
    wrong = whole("c", b"one")._replace(put=NewPut("\ud800", 0, b"", EnvelopeHead(key="c")))
    with pytest.raises(Refused):
        outbox.queue([whole("b", b"two"), wrong], NOW)
    assert waiting(outbox) == ["a"]


def test_the_order_is_that_of_the_ends(outbox: Outbox) -> None:
    begin(outbox, "a")
    begin(outbox, "b")
    outbox.end_envelope("b", NOW)
    outbox.end_envelope("a", NOW)
    queue(outbox, "c")
    assert waiting(outbox) == ["b", "a", "c"]


def test_only_whole_envelopes_outlive_the_process(outbox: Outbox, path: Path) -> None:
    queue(outbox, "a", b"one")
    begin(outbox, "b", b"two")
    outbox.close()
    reopened = Outbox(path)
    assert reopened.status().waiting == 1
    reopened.remove_unfinished()
    assert waiting(reopened) == ["a"]
    reopened.close()
    connection = sqlite3.connect(path)
    assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("envelope", "batch")] == [
        (0,),
        (0,),
    ]
    connection.close()


def test_a_call_made_again_changes_nothing(outbox: Outbox) -> None:
    for _ in range(2):
        outbox.start_envelope("a", "key a", None)
        outbox.start_event("a", "event", "notes", 0)
        outbox.append("a", "event", 0, 1, b"one")
    assert outbox.end_envelope("a", NOW) == outbox.end_envelope("a", NOW) == (1, 1)
    assert outbox.status().waiting_bytes == ENVELOPE_BYTES + 3
    assert waiting(outbox) == ["a"]


def test_it_holds_no_more_than_it_may(path: Path) -> None:
    outbox = Outbox(path, max_bytes=2 * ENVELOPE_BYTES + 10)
    queue(outbox, "a", b"12345")
    begin(outbox, "b", b"12345")
    with pytest.raises(Refused) as caught:
        outbox.append("b", "event of b", 1, 1, b"6")
    assert caught.value.code == "outbox_full"
    with pytest.raises(Refused):
        outbox.start_envelope("c", "key c", None)
    outbox.remove("a")
    outbox.append("b", "event of b", 1, 1, b"6")
    outbox.close()


def test_what_was_refused_is_out_of_the_line_until_a_person_decides(outbox: Outbox) -> None:
    for name in ("a", "b", "c", "d"):
        queue(outbox, name)
    for name in ("a", "b", "c"):
        outbox.set_aside(name, "unknown_type", "there is none")
    refused = outbox.status().refused
    assert [(each.place, each.code, each.cause) for each in refused] == [
        (place, "unknown_type", "there is none") for place in (1, 2, 3)
    ]
    for wrong in ([2, 99], [4]):
        with pytest.raises(Refused, match="some of these places have no refused"):
            outbox.drop(wrong)
    assert outbox.drop([2]) == 1
    assert outbox.retry([3]) == 1
    assert waiting(outbox) == ["c", "d"]
    assert outbox.drop([]) == 1
    assert outbox.status().refused == []


def test_trouble_is_told_since_it_began(outbox: Outbox) -> None:
    outbox.note_trouble("timed_out", "no answer", NOW)
    outbox.note_trouble("connection_lost", "it went away", NOW.replace(year=2027))
    assert outbox.status().trouble == ("connection_lost", "it went away", "2026-11-21T00:00:00+00:00")
    outbox.forget_trouble()
    assert outbox.status().trouble is None


def test_one_process_sends_from_it(path: Path) -> None:
    with locked(path):
        with pytest.raises(Refused, match=r"process \d+ sends from the outbox") as caught, locked(path):
            pytest.fail("the lock was given twice")
        assert caught.value.code == "outbox_in_use"
    with locked(path):
        pass


def test_what_is_no_outbox_is_told_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no outbox"):
        Outbox.existing(path)
    assert not path.exists()
    path.write_bytes(b"a letter, and none of SQLite's files" * 100)
    assert refused_with(lambda: Outbox(path)) == "outbox_broken"
    for version in (0, 1):
        other = tmp_path / f"other {version}"
        connection = sqlite3.connect(other)
        connection.execute("CREATE TABLE mine (id)")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        before = other.read_bytes()
        assert refused_with(partial(Outbox, other)) == "outbox_broken"
        assert other.read_bytes() == before
    with pytest.raises(Failed), locked(tmp_path / "nowhere" / "file"):
        pytest.fail("there is no such folder")


def test_a_damaged_file_is_told(outbox: Outbox, path: Path) -> None:
    queue(outbox, "a", b"one")
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with open(name, "r+b") as file:
            file.write(b"\xff" * 4096)
    assert refused_with(outbox.first_waiting) == "outbox_broken"
    assert refused_with(lambda: outbox.set_aside("a", "code", "cause")) == "outbox_broken"


def test_what_can_not_be_written_down_is_refused(outbox: Outbox) -> None:
    assert refused_with(lambda: outbox.start_envelope("a", "\ud800", None)) == "wrong_arguments"
    outbox.start_envelope("b", "key", None)
    assert refused_with(lambda: outbox.start_event("b", "event", "notes", 2**70)) == "wrong_arguments"
    assert outbox.end_envelope("b", NOW) == (0, 0)


def test_what_was_not_all_written_is_not_ended(outbox: Outbox) -> None:
    begin(outbox, "a", b"one")
    for wanted in ((1, 2), (2, 1)):
        with pytest.raises(Failed, match="not all of the envelope"):
            outbox.end_envelope("a", NOW, wanted)
        assert outbox.first_waiting() is None
    assert outbox.end_envelope("a", NOW, (1, 1)) == (1, 1)


def refused_with(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_lives_on_does_not_keep_the_lock(path: Path) -> None:
    read, write = os.pipe()
    with locked(path):
        pid = os.fork()
        if pid == 0:
            os.read(read, 1)
            os._exit(0)
        with pytest.raises(Refused) as caught, locked(path):
            pass
        assert caught.value.code == "outbox_in_use"
    try:
        with locked(path):
            pass
    finally:
        os.write(write, b"x")
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


HEADERS, TAGS = b"headers", EventTags(b"of the event", "client 7")


def test_headers_are_kept(outbox: Outbox) -> None:
    for _ in range(2):
        outbox.start_envelope("a", "key a", None, HEADERS)
        outbox.start_event("a", "event 1", "notes", 0, TAGS)
        outbox.start_event("a", "event 2", "notes", 0)
    outbox.end_envelope("a", NOW)
    first = outbox.first_waiting()
    assert first is not None
    assert (first.headers, first.size) == (HEADERS, ENVELOPE_BYTES + len(HEADERS) + TAGS.size)
    assert [(event.headers, event.partition_key) for event in outbox.events("a")] == [TAGS, NO_TAGS]


def test_headers_count(path: Path) -> None:
    outbox = Outbox(path, max_bytes=ENVELOPE_BYTES + 20)
    with pytest.raises(Refused) as caught:
        outbox.start_envelope("a", "key a", None, b"x" * 21)
    assert caught.value.code == "outbox_full"
    outbox.start_envelope("a", "key a", None, b"x" * 10)
    with pytest.raises(Refused):
        outbox.start_event("a", "event", "notes", 0, EventTags(b"x" * 11))
    outbox.start_event("a", "event", "notes", 0, EventTags(b"x" * 10))
    outbox.close()


def test_a_file_from_before_there_were_headers(path: Path, outbox: Outbox) -> None:
    """It is brought up to date where it is opened, with what waits in it."""
    queue(outbox, "a", b"one")
    outbox.close()
    connection = sqlite3.connect(path)
    for table, column in (("envelope", "headers"), ("event", "headers"), ("event", "partition_key")):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    for _ in range(2):
        opened = Outbox.existing(path)
        first = opened.first_waiting()
        assert first is not None
        assert (first.envelope_id, first.headers) == ("a", None)
        assert [(event.type_name, event.headers) for event in opened.events("a")] == [("notes", None)]
        opened.close()
    opened = Outbox.existing(path)
    opened.start_envelope("b", "key b", None, HEADERS)
    opened.end_envelope("b", NOW)
    assert waiting(opened) == ["a", "b"]
    opened.close()
