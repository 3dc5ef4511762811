"""Programs that read at their own pace, against a double of the back."""

import asyncio
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from tests.integration.reader.reader_double import LOGIN, ReaderDouble
from tests.support.doubles import Double
from tests.support.waiting import eventually
from xbus.errors import ConfigurationError, Failed, Refused
from xbus.reader import AsyncReader, Reader, ReaderBatch
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import verb


def reader_of(back: Double, **options: Any) -> AsyncReader:
    return AsyncReader(back.address, LOGIN, "password", **options)


def numbers(count: int) -> list[bytes]:
    return [msgpack.packb(number) for number in range(count)]


async def test_a_program_gets_batches_and_says_when_each_is_done(back: ReaderDouble) -> None:
    back.items = numbers(5)
    found: list[int] = []
    async with reader_of(back, batch_items=2, wait=20) as reader:
        async for batch in reader:
            found += [item.value for item in batch]
            batch.done()
            if len(found) == 5:
                break
        assert back.settled == 4, "the last one is noted with the next call, or at the end"
    assert found == [0, 1, 2, 3, 4]
    assert (back.settled, back.owner) == (5, None)
    assert back.calls[-3:] == ["checkpoint", "leave_ranges", "logout"]
    assert back.batches[0]["max_items"] == 2


async def test_items_tell_what_the_bus_knows_of_them(back: ReaderDouble) -> None:
    back.items = numbers(2)
    async with reader_of(back) as reader:
        batch = await reader.next_batch()
        _, item = batch
        assert (batch.place, batch.end, batch.range, batch.is_repeated) == ("1", "3", 7, False)
        assert (len(batch), [event.data for event in batch.events]) == (2, [[b"\0"], [b"\1"]])
        assert (item.value, item.index, item.event_type, item.event.position) == (1, 0, "orders", 2)
        event = item.event
        assert (event.id, event.envelope_id, event.emitter, event.index) == ("event 1", "envelope 1", "shop", 0)
        assert (event.key, event.ordering_key, event.partition_key) == (None, "k", "client 1")
        assert event.sealed_at == datetime.fromtimestamp(1_600_000_001, UTC)
        assert (event.headers, event.envelope_headers) == ({}, {})


async def test_a_batch_that_is_not_done_is_asked_for(back: ReaderDouble) -> None:
    back.items = numbers(2)
    async with reader_of(back) as reader:
        await reader.next_batch()
        with pytest.raises(Refused, match="not done") as refused:
            await reader.next_batch()
        assert refused.value.code == "batch_not_done"
    assert back.settled == 0
    async with reader_of(back) as reader:
        assert (await reader.next_batch()).is_repeated


async def test_a_program_waits_for_more(back: ReaderDouble) -> None:
    async with reader_of(back) as reader:
        waiting = asyncio.create_task(reader.next_batch())
        await eventually(lambda: back.batches, "the program asks")
        back.items += numbers(1)
        batch = await waiting
        assert [item.value for item in batch] == [0]


async def test_a_program_that_gives_up_waiting_leaves_its_ranges(back: ReaderDouble) -> None:
    async with reader_of(back) as reader:
        waiting = asyncio.create_task(reader.next_batch())
        await eventually(lambda: back.owner, "the program has the range")
        waiting.cancel()
    assert (back.owner, back.calls[-2:]) == (None, ["leave_ranges", "logout"])


async def test_leases_are_renewed_while_the_author_works(back: ReaderDouble) -> None:
    back.items, back.lease = numbers(2), 0.03
    async with reader_of(back) as reader:
        batch = await reader.next_batch()
        await eventually(lambda: back.renewals > 2, "leases are renewed")
        batch.done()
        await eventually(lambda: back.settled == 2, "what is done is noted though nothing is read")


async def test_a_lost_lease_is_told(back: ReaderDouble) -> None:
    back.items = numbers(3)
    program = uuid.uuid4()
    async with reader_of(back, batch_items=1, program=program) as reader:
        batch = await reader.next_batch()
        back.take_over()
        batch.done()
        with pytest.raises(Refused, match="the lease is another program's") as refused:
            await reader.next_batch()
        assert refused.value.code == "lease_lost"
        assert batch.is_lost
        back.owner = str(program)
        assert [item.value for item in await reader.next_batch()] == [0], "it reads on"


async def test_a_renewal_tells_of_a_lost_lease(back: ReaderDouble) -> None:
    back.items, back.lease = numbers(1), 0.03
    async with reader_of(back) as reader:
        batch = await reader.next_batch()
        back.take_over()
        await eventually(lambda: batch.is_lost, "the renewal tells it")
        batch.done()
        with pytest.raises(Refused, match="range 7 is read by another program now, or was moved"):
            await reader.next_batch()
        back.owner = None
        async with asyncio.timeout(10):
            assert [item.value for item in await reader.next_batch()] == [0], "it reads on, as the error says"


async def test_a_renewal_that_settles_too_late_is_told_with_the_next_batch(back: ReaderDouble) -> None:
    back.items, back.lease = numbers(2), 0.03
    program = uuid.uuid4()
    async with reader_of(back, batch_items=1, program=program) as reader:
        batch = await reader.next_batch()
        batch.done()
        back.take_over()
        await eventually(lambda: "checkpoint" in back.calls, "the renewal settles what is done")
        with pytest.raises(Refused) as refused:
            async with asyncio.timeout(10):
                await reader.next_batch()
        assert refused.value.code == "lease_lost"
        back.owner = str(program)
        assert [item.value for item in await reader.next_batch()] == [0], "it reads on"


@pytest.mark.parametrize("lease", [10.0, 0.03], ids=["told by the call", "told by a renewal"])
@pytest.mark.parametrize("is_done", [True, False])
async def test_a_program_that_iterates_drops_the_batch_of_a_lost_range_and_reads_on(
    back: ReaderDouble, lease: float, is_done: bool
) -> None:
    """As the documented program does, when somebody splits, merges or moves a range."""
    back.items, back.lease = numbers(3), lease
    found: list[int] = []
    async with asyncio.timeout(60), reader_of(back, batch_items=1) as reader:
        async for batch in reader:
            found += [item.value for item in batch]
            if len(found) == 1:
                batch.is_done = is_done
                back.take_over()
                if lease < 1:
                    await eventually(lambda: batch.is_lost, "a renewal tells it")  # noqa: B023
                back.owner = None
            batch.done()
            if len(found) == 4:
                break
    assert found == [0, 0, 1, 2]
    assert back.settled == 3


async def test_a_forgotten_session_and_a_lost_connection_are_no_trouble(back: ReaderDouble) -> None:
    back.items = numbers(3)
    async with reader_of(back, batch_items=1) as reader:
        (await reader.next_batch()).done()
        back.tokens.clear()
        (await reader.next_batch()).done()
        back.restart()
        assert [item.value for item in await reader.next_batch()] == [2]


async def test_failures_are_repeated_for_as_long_as_was_said(back: ReaderDouble) -> None:
    back.faults["read_batch"] += [Failed("not now")] * 1000
    async with reader_of(back, retry_seconds=0.01) as reader:
        with pytest.raises(Failed, match="each try within"):
            await reader.next_batch()


async def test_a_wrong_password_and_an_old_broker_say_so(back: ReaderDouble) -> None:
    with pytest.raises(Refused) as refused:
        async with AsyncReader(back.address, LOGIN, "wrong"):
            pass
    assert refused.value.code == "login_refused"

    class OldBack(Double):
        @verb("xbus.login")
        def login(self, login: str, password: str) -> dict[str, Any]:
            return {"token": "t", "max_batch_bytes": 5000}

    context = new_context()
    old = OldBack(context).start()
    try:
        async with reader_of(old) as reader:
            with pytest.raises(Refused, match="too old for readers") as refused:
                await reader.next_batch()
            assert refused.value.code == "readers_unsupported"
    finally:
        old.stop()
        context.destroy(linger=0)


async def test_any_part_of_the_log_is_read_without_a_lease(back: ReaderDouble) -> None:
    back.items = numbers(5)
    async with reader_of(back, batch_items=2) as reader:
        found = [item.value async for batch in reader.at("2") for item in batch]
    async with reader_of(back) as reader:
        of_key = [item.value async for batch in reader.for_key("client 1") for item in batch]
    assert (found, of_key) == ([1, 2, 3, 4], [1, 3])
    assert not {"read_batch", "leave_ranges", "checkpoint"} & set(back.calls)


async def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="batch_items"):
        AsyncReader("tcp://127.0.0.1:1", "a", "b", batch_items=0)
    with pytest.raises(ConfigurationError, match="at most 30"):
        AsyncReader("tcp://127.0.0.1:1", "a", "b", wait=31)


async def test_an_ordinary_program_reads_without_a_loop(back: ReaderDouble) -> None:
    back.items = numbers(4)
    found: list[Any] = []

    def program() -> None:
        with Reader(back.address, LOGIN, "password", batch_items=2) as reader:
            found.append([item.value for batch in reader.at("oldest") for item in batch])
            for batch in reader:
                assert isinstance(batch, ReaderBatch)
                found.append([item.value for item in batch])
                batch.done()
                if batch.end == "5":
                    return

    thread = threading.Thread(target=program)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert found == [[0, 1, 2, 3], [0, 1], [2, 3]]
    assert (back.settled, back.owner) == (4, None)
