"""Groups that go as columns, in a whole back: who gets them, and what becomes of those that are not committed."""

import asyncio
from typing import Any

import pytest

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, Wire, bundles, by_item, letters, until_states
from tests.support.recipients import BUNDLES, ScriptedClient
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.journal.journal import Journal

RETRIES = RetryPolicy(attempts=3, jitter=0)


async def put_all(broker: Broker, items: str, type_name: str = "notes") -> None:
    for item in items:
        await broker.put(item.encode(), type_name=type_name)


async def known(broker: Broker) -> None:
    """Have one envelope delivered, by the lane: the emitter and the graph are known from then on."""
    await put_all(broker, "_")
    await broker.until(lambda: letters(broker) == "_")
    cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
    assert cursor is not None
    await broker.until(lambda: cursor.position == 1)


def hold(client: ScriptedClient) -> "asyncio.Future[Any]":
    """Have the calls of a consumer wait for the answer that is given to the future."""
    out: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    client.answers["xbus.take_envelopes"] = out
    return out


def in_groups(broker: Broker) -> int:
    return broker.back.figures.in_groups


async def test_a_role_at_the_head_gets_what_is_sealed_in_the_turn_of_its_commit(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES)
        await known(broker)
        await put_all(broker, "a")
        assert letters(broker) == "_a", "nothing was waited for"
        await broker.until(lambda: in_groups(broker) == 1)
    assert await broker.cursor() == 2


async def test_what_is_sealed_while_a_call_is_out_goes_together(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "abcd")
        assert letters(broker) == "_a"
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 4)
        assert bundles(broker)[-1:] == ["bcd"]
    assert await broker.cursor() == 5


async def test_a_failure_concerns_its_envelope_alone(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"b": FAILS}))
        await known(broker)
        await put_all(broker, "abc")
        await until_states(broker, [(3, "retry", 1)])
        await broker.until(lambda: letters(broker).endswith("c"))
    assert await broker.cursor() == 4


@pytest.mark.parametrize("is_late", [False, True], ids=["at_once", "while_others_are_out"])
async def test_a_fault_while_they_are_written_reaches_no_commit(journal: Journal, is_late: bool) -> None:
    """The emitter has its receipt, and the envelope goes alone."""
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)

        def fail(bundle: Wire) -> Any:
            raise RuntimeError("a fault of ours")

        client.answers["xbus.take_envelopes"] = fail
        await put_all(broker, "ab" if is_late else "a")
        client.answers.clear()
        while not set(letters(broker)) >= set("ab" if is_late else "a"):
            broker.pass_time(10)
            await asyncio.sleep(0.001)
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
        assert cursor is not None
        await broker.until(lambda: cursor.position == (3 if is_late else 2))


async def test_what_an_operator_skips_while_it_waits_is_not_handed_over(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "abc")
        broker.back._assembly.ledger.settle(broker.scribe.role_id("store_1"), 3)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: letters(broker).endswith("c"))
        assert letters(broker) == "_ac"


async def test_a_role_that_leaves_gets_what_waited_when_it_comes_again(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "abc")
        leaving = asyncio.ensure_future(broker.leave("store_1"))
        await asyncio.sleep(0)
        out.set_result([DONE])
        await leaving
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "_abc")
    assert await broker.cursor() == 4


async def test_a_call_that_is_out_at_the_end_is_broken_off(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        hold(client)
        await put_all(broker, "a")
        await broker.back._assembly._groups.finish(0.01)
        assert [call.verb for call in broker.script.calls][-1] == "stop_envelope"
        assert (await broker.cursor(), in_groups(broker)) == (1, 0)
