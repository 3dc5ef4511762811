"""Tests of a reading program and of a bot."""

from datetime import UTC, datetime

from xbus.bots import BotBatch, BotOutput
from xbus.testing import Bus


def nightly(batch: BotBatch, out: BotOutput) -> None:
    out.put("reports", [{"slot": batch.slot.isoformat() if batch.slot else None}])


def test_a_crash_costs_nothing(bus: Bus) -> None:
    bus.type("orders").read_by("billing")
    bus.emit("orders", [{"client": 7, "amount": 1250}])

    with bus.reader("billing") as reader:
        first = reader.next_batch()
        reader.crash()  # before batch.done()

    with bus.reader("billing") as reader:
        again = reader.next_batch()
    assert (again.is_repeated, again.place, again.end) == (True, first.place, first.end)


def test_the_report_is_put_once(bus: Bus) -> None:
    bus.bot("report", nightly, cron="0 3 * * *", emits=["reports"])
    slot = datetime(2026, 1, 2, 3, tzinfo=UTC)

    bus.fire("report", slot)
    bus.crash("report", "after_commit")
    bus.run()
    bus.fire("report", slot)
    bus.run()

    assert bus.sent("reports") == [{"slot": "2026-01-02T03:00:00+00:00"}]
