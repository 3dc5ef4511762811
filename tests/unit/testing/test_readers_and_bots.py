"""Readers and bots on the bus for tests."""

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from xbus.bots import BotBatch, BotOutput
from xbus.errors import Refused, TimedOut
from xbus.reader import Reader
from xbus.testing import Bus

SLOT = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as bus:
        yield bus


@pytest.fixture
def shop(bus: Bus) -> Bus:
    """A bus with orders, which a reader reads."""
    bus.type("orders").read_by("billing")
    return bus


def bill(reader: Reader) -> list[object]:
    """A reading program as an author writes it."""
    found: list[object] = []
    for batch in reader:
        found += [item.value for item in batch]
        batch.done()
    return found


def nightly(batch: BotBatch, out: BotOutput) -> None:
    out.put("reports", [{"slot": None if batch.slot is None else batch.slot.isoformat(), **batch.settings}])


def totals(batch: BotBatch, out: BotOutput) -> None:
    out.put("totals", [sum(item.value for item in batch.items)])


def test_a_program_reads_what_came_and_goes_on_where_it_left(shop: Bus) -> None:
    for number in range(5):
        shop.emit("orders", [number], partition_key=f"client {number % 2}")
    with shop.reader("billing", batch_items=2) as reader:
        assert bill(reader) == [0, 1, 2, 3, 4]
    shop.emit("orders", [5])
    with shop.reader("billing") as reader:
        assert bill(reader) == [5]
        assert bill(reader) == []


def test_what_is_not_done_comes_again_as_the_same_batch(shop: Bus) -> None:
    shop.emit("orders", [1, 2, 3])
    with shop.reader("billing", batch_items=2) as reader:
        first = reader.next_batch()
        begun = (first.place, first.end, [item.value for item in first])
        assert begun[2] == [1, 2]
        reader.crash()
    del first
    shop.emit("orders", [4])
    shop.crash_broker()
    with shop.reader("billing") as reader:
        again = reader.next_batch()
        gc.collect()  # no task of the dead program still waits
        assert again.is_repeated
        assert (again.place, again.end, [item.value for item in again]) == begun
        again.done()
        assert bill(reader) == [3, 4]


def test_a_batch_that_is_not_done_is_asked_for(shop: Bus) -> None:
    shop.emit("orders", [1])
    with shop.reader("billing") as reader:
        reader.next_batch()
        with pytest.raises(Refused) as refusal:
            reader.next_batch()
        assert refusal.value.code == "batch_not_done"


def test_programs_share_the_ranges(bus: Bus) -> None:
    bus.type("orders").read_by("billing", ranges=2)
    for number in range(20):
        bus.emit("orders", [number], partition_key=str(number))
    with bus.reader("billing") as one, bus.reader("billing") as other:
        first, second = one.next_batch(), other.next_batch()
        assert first.range != second.range
        found = [item.value for item in (*first, *second)]
        first.done()
        second.done()
        assert sorted([*found, *bill(one), *bill(other)]) == [*range(20)]


def test_a_program_that_was_thought_dead_settles_nothing(shop: Bus) -> None:
    shop.emit("orders", [1])
    with shop.reader("billing") as dead:
        dead.next_batch()
        dead.crash()
        with shop.reader("billing") as reader:
            assert reader.next_batch().is_repeated


def test_any_part_of_the_log_is_read(shop: Bus) -> None:
    shop.emit("orders", [1], partition_key="client 7", headers={"shop": "north"})
    shop.emit("orders", [2], ordering_key="client 8")
    with shop.reader("billing") as reader:
        assert [item.value for batch in reader.at("oldest", follow=True) for item in batch] == [1, 2]
        assert [item.value for batch in reader.at("2") for item in batch] == [2]
        (batch,) = reader.for_key("client 7")
        (item,) = batch
        assert (item.value, item.event.headers) == (1, {"shop": "north"})
        with pytest.raises(Refused) as refusal:
            next(reader.at("99"))
        assert refusal.value.code == "place_beyond_end"
        assert bill(reader) == [1, 2], "looking back leaves no trace"


def test_a_reader_of_a_bus_file(tmp_path: Path) -> None:
    (tmp_path / "bus.toml").write_text(
        '[[event_type]]\nname = "orders"\n[[reader]]\nname = "billing"\nevent_types = ["orders"]\nstart = "oldest"\n'
        '[[role]]\nlogin = "billing_1"\nservice = "billing"\n'
        '[[emitter_profile]]\nname = "shop"\nevent_types = ["orders"]\n'
        '[[emitter]]\nlogin = "shop_1"\nprofile = "shop"\n'
    )
    with Bus.from_file(tmp_path / "bus.toml") as bus:
        bus.emit("orders", [1])
        with bus.reader("billing_1") as reader:
            assert bill(reader) == [1]


def test_unknown_readers_and_the_end_have_codes(shop: Bus) -> None:
    with pytest.raises(Refused) as refusal:
        shop.reader("shipping")
    assert refusal.value.code == "unknown_reader"
    with shop.reader("billing") as reader, pytest.raises(TimedOut) as late:
        reader.next_batch()
    assert late.value.code == "nothing_to_read"


def test_a_bot_runs_at_its_slots_and_once_for_each(bus: Bus) -> None:
    bus.bot("report", nightly, cron="0 3 * * *", emits=["reports"], settings={"shop": "north"})
    bus.type("reports").to("printer")

    assert bus.fire("report", SLOT) == SLOT
    bus.fire("report", SLOT)
    bus.run()
    bus.fire("report", SLOT)
    bus.run()

    assert bus.received("printer") == [{"slot": SLOT.isoformat(), "shop": "north"}]
    assert [(run.slot, run.state, run.attempts) for run in bus.runs("report")] == [(SLOT, "done", 1)]
    assert bus.fire("report") == datetime(2026, 1, 3, 3, tzinfo=UTC)


def test_time_that_passes_fires_a_bot(bus: Bus) -> None:
    bus.bot("report", nightly, cron="* * * * *", emits=["reports"])
    bus.wait(150)
    assert len(bus.sent("reports")) == 2


@pytest.mark.parametrize("moment", ["items", "before_commit", "after_commit"])
def test_a_runner_that_crashes_puts_nothing_twice(bus: Bus, moment: str) -> None:
    bus.bot("report", nightly, cron="0 3 * * *", emits=["reports"])
    bus.crash("report", moment)  # type: ignore[arg-type]
    bus.fire("report")
    bus.run()
    assert len(bus.sent("reports")) == 1
    assert [run.state for run in bus.runs("report")] == ["done"]


def test_a_bot_gets_batches_and_puts_once_for_each(bus: Bus) -> None:
    bus.bot("totals", totals, reads=["orders"], emits=["totals"], batch_items=2)
    bus.type("totals").to("printer")
    bus.run()
    bus.emit("orders", [1, 2, 3])
    bus.crash("totals", "after_commit")
    bus.run()
    assert bus.received("printer") == [3, 3]
    bus.emit("orders", [4])
    bus.crash_broker()
    bus.run()
    assert bus.received("printer") == [3, 3, 4]


def test_bots_behind_bots(bus: Bus) -> None:
    bus.bot("totals", totals, reads=["orders"], emits=["totals"])
    bus.bot("doubles", lambda batch, out: out.put("doubles", [2 * item.value for item in batch.items]),
            reads=["totals"], emits=["doubles"])  # fmt: skip
    bus.emit("orders", [1, 2])
    bus.run()
    assert bus.sent("doubles") == [6]


def test_a_bot_that_fails_is_tried_again_and_puts_nothing_of_it(bus: Bus) -> None:
    def half(batch: BotBatch, out: BotOutput) -> None:
        out.put("reports", [1])
        if batch.attempt < 3:
            raise ValueError("half of it is missing")

    bus.bot("report", half, emits=["reports"])
    bus.fire("report")
    bus.run()
    assert bus.sent("reports") == [1]
    assert bus.clock.monotonic() > 3


def test_a_bot_that_fails_for_good_says_why(bus: Bus) -> None:
    bus.bot("report", lambda batch, out: out.put("others", [1]), emits=["reports"], attempts=1)
    bus.fire("report")
    bus.run()
    assert [(run.state, run.code) for run in bus.runs("report")] == [("failed", "not_emitted")]
    assert bus.sent("reports") == []


def test_a_bot_is_made_to_fail(bus: Bus) -> None:
    bus.bot("report", nightly, emits=["reports"])
    bus.fail("report", OSError("the disk is full"))
    bus.fire("report")
    bus.run()
    (run,) = bus.runs("report")
    assert (run.state, run.attempts, len(bus.sent("reports"))) == ("done", 2, 1)


def test_moments_that_are_no_slots_are_refused(bus: Bus) -> None:
    bus.bot("report", nightly, cron="0 3 * * *", emits=["reports"])
    bus.bot("totals", totals, reads=["orders"], emits=["totals"])
    for name, slot, code in [
        ("report", SLOT.replace(minute=1), "no_slot"),
        ("totals", SLOT, "no_slot"),
        ("totals", None, "bot_reads"),
        ("nobody", None, "unknown_name"),
    ]:
        with pytest.raises(Refused) as refusal:
            bus.fire(name, slot)
        assert refusal.value.code == code
