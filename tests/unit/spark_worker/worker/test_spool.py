"""The file in which items of the ordinary path wait for Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_worker.items.batches import batches
from spark_worker.worker.spool import Region, Spool, unframed
from xbus.errors import Failed
from xbus.recipient import Batch


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "event.spool")
    yield spool
    spool.remove()


def rows(spool: Spool, parts: int) -> list[list[tuple[int | None, bytes]]]:
    """What each part of the spool holds."""
    found = []
    for start, end in spool.cut(parts):
        data = Region(str(spool.path), start, end).read()
        made = [
            row
            for batch in batches(unframed(data))
            for row in zip(batch.column("_index").to_pylist(), batch.column("data").to_pylist(), strict=True)
        ]
        found.append(made)
    return found


def test_what_was_kept_is_read_back_in_order(spool: Spool) -> None:
    spool.add(Batch([b"a", b"b"], 4))
    spool.add(Batch([b"c", b"d"], 0, [[9], []]))
    spool.finish()

    assert rows(spool, 1) == [[(4, b"a"), (5, b"b"), (9, b"c"), (None, b"d")]]
    assert (spool.items, spool.origins.end) == (4, 10)


def test_parts_hold_about_as_many_items_each(spool: Spool) -> None:
    for number in range(10):
        spool.add(Batch([b"x"] * 10, number * 10))
    spool.finish()

    found = rows(spool, 4)

    assert [index for part in found for index, _ in part] == list(range(100))
    assert len(found) == 4
    assert all(20 <= len(part) <= 30 for part in found)


def test_all_indices_of_an_item_made_of_several_are_kept(spool: Spool) -> None:
    spool.add(Batch([b"a", b"b"], 0, [[3, 4], [5]]))

    assert spool.origins.several == {3: [3, 4]}


def test_items_that_only_begin_alike_are_told_apart_from_others(spool: Spool) -> None:
    """A row keeps the first index alone: what it would stand for besides would be blamed for the fault of another."""
    spool.add(Batch([b"a", b"b"], 0, [[3, 4], [3, 5]]))
    spool.add(Batch([b"c", b"d", b"e"], 0, [[6, 7], [6], []]))
    spool.add(Batch([b"f"], 8, [[8, 9]]))
    spool.add(Batch([b"g", b"h"], 7))
    spool.add(Batch([b"i"] * 3, 0, [[1, 2]] * 3))

    assert spool.origins.several == {1: [1, 2]}
    assert spool.origins.end == 10


def test_an_event_without_items_is_one_empty_part(spool: Spool) -> None:
    spool.finish()

    assert rows(spool, 3) == [[]]


def test_it_is_removed_twice_without_harm(spool: Spool) -> None:
    spool.add(Batch([b"a"], 0))
    spool.remove()
    spool.remove()

    assert not spool.path.exists()


def test_a_spool_that_can_not_be_made_is_told_as_what_may_go_well_later(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="see that its disk has room") as caught:
        Spool(tmp_path / "gone" / "spool")

    assert caught.value.code == "spool_failed"
