"""Recipients that are about to go: they end what they have begun, and get nothing more."""

import asyncio
import math
from dataclasses import replace

import pytest

from tests.support.back import running
from tests.support.recipients import LOST, NEW
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.failures import list_failures
from xbus.errors import Failed

STOPPING = Failed("the recipient is about to stop", code="recipient_stopping")
SUPERSEDED = Failed("the broker has connected anew", code="connection_superseded")
STOPPED = Failed("the envelope was stopped", code="envelope_stopped")


@pytest.mark.parametrize("said", [STOPPING, SUPERSEDED])
async def test_one_that_is_about_to_go_gets_nothing_more_until_it_is_back(journal: Journal, said: Failed) -> None:
    async with running(journal, retry=RetryPolicy(attempts=2), trouble_after=2) as broker:
        await broker.register("store_1", replace(NEW, envelopes=8), xbus_take_event=said)
        for number in range(8):
            await broker.put(b"%d" % number)
        await broker.until(lambda: broker.items("store_1"))
        for _ in range(200):
            await asyncio.sleep(0)
        turned_away = len(broker.items("store_1"))
        assert turned_away <= 8
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_1"))
        assert {state for state, _, _ in (await broker.rows()).values()} <= {"retry"}
        # One that stops is known still. One that was called by another connection must register anew, by its heartbeat.
        is_known = broker.back.heartbeat(broker.scribe.role_id("store_1"), b"store_1", [])
        assert is_known is (said is STOPPING)
        await broker.register("store_1")
        await broker.until(lambda: len(set(broker.items("store_1")[turned_away:])) == 8)
        await broker.until_rows({})


async def test_however_often_it_goes_that_is_no_failed_attempt(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3), trouble_after=2) as broker:
        await broker.put(b"patient")
        for times in range(1, 6):
            await broker.register("store_1", xbus_take_event=STOPPING)
            await broker.until(lambda: len(broker.items("store_1")) == times)  # noqa: B023
            await broker.until_rows({"store_1": ("retry", 1, "recipient_stopping")})
        await broker.register("store_1")
        await broker.until_rows({})
        assert await broker.journal.read(list_failures) == [], "an orderly stop is no failure"


async def test_a_broker_whose_lease_is_over_counts_no_attempt(journal: Journal) -> None:
    until = -math.inf
    journal.leads_until = lambda: until
    async with running(journal, retry=RetryPolicy(attempts=1)) as broker:
        await broker.register("store_1")
        await broker.put(b"waits for the next broker")
        await broker.until_rows({"store_1": ("retry", 1, "not_leading")})
        assert await broker.journal.read(list_failures) == []
        until = math.inf
        broker.pass_time(60)
        await broker.until_rows({})
        assert broker.items("store_1") == [b"waits for the next broker"]


async def test_it_may_end_what_it_has_begun(journal: Journal) -> None:
    async with running(journal, trouble_after=2) as broker:
        ends: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        client = await broker.register("store_1", replace(NEW, envelopes=2), xbus_take_event=ends)
        await broker.put(b"begun")
        await broker.until(lambda: broker.items("store_1") == [b"begun"])
        client.answers = {"xbus.take_event": STOPPING}
        await broker.put(b"turned away")
        await broker.until_rows({"store_1": ("retry", 1, "recipient_stopping")})
        ends.set_result([True, None])
        await broker.register("store_1")
        await broker.until_rows({})
        assert broker.items("store_1") == [b"begun", b"turned away", b"turned away"]


async def test_a_worker_that_is_about_to_go_is_absent(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=2), trouble_after=2) as broker:
        await broker.register("names_1", xbus_take_event=STOPPING)
        await broker.register("store_1")
        for number in range(4):
            await broker.put(b"%d" % number, type_name="flights")
        await broker.put(b"note")
        await broker.until(lambda: broker.items("store_1") == [b"note"])
        assert len(broker.items("names_1")) == 1
        await broker.register("names_1")
        await broker.until_rows({})
        assert sorted(broker.items("store_1")) == [b"0", b"1", b"2", b"3", b"note"]


async def test_what_it_rolled_back_by_itself_is_no_failed_attempt(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=1), trouble_after=1) as broker:
        client = await broker.register("store_1", xbus_take_event=STOPPED)
        await broker.put(b"rolled back")
        await broker.until_rows({"store_1": ("retry", 1, "envelope_stopped")})
        client.answers = {}
        broker.pass_time(2)
        await broker.until_rows({})


async def test_one_that_was_called_by_another_broker_registers_anew_before_it_is_asked_again(journal: Journal) -> None:
    """It turns away even the word to forget what it has open, with which each further attempt begins."""
    async with running(journal) as broker:
        role_id = broker.scribe.role_id("store_1")
        await broker.register("store_1", replace(NEW, heartbeats=True), xbus_take_event=STOPPED)
        await broker.put(b"x")
        await broker.until_rows({"store_1": ("retry", 1, "envelope_stopped")})
        client = broker.clients["tcp://store_1"]
        client.answers = {"stop_envelope": SUPERSEDED}
        broker.pass_time(2)
        await broker.until(lambda: not broker.back.heartbeat(role_id, b"store_1", []))
        await broker.register("store_1")
        await broker.until_rows({})


async def test_an_answer_counts_however_late_it_comes_behind_the_logout(journal: Journal) -> None:
    """An answer to a commit that is under way at the logout of its consumer.

    1. The broker calls ``xbus.take_event``, and the consumer commits. 2. The consumer logs out over another connection.
    3. The broker answers the logout, and waits no longer. 4. The answer to the commit arrives. Formerly the broker had
    closed the connection at step 3, so the envelope was owed to a successor.
    """
    async with running(journal, trouble_after=2) as broker:
        ends: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        client = await broker.register("store_1", replace(NEW, envelopes=8), xbus_take_event=ends)
        client.owes.clear()
        await broker.put(b"committed")
        await broker.until(lambda: broker.items("store_1") == [b"committed"])
        role_id = broker.scribe.role_id("store_1")
        await broker.back.log_out(role_id, b"store_1", seconds=0)
        await broker.put(b"for a successor")
        for _ in range(200):
            await asyncio.sleep(0)
        assert not client.closed
        ends.set_result([True, None])
        client.owes.set()
        await broker.until(lambda: not broker.back.is_registered(role_id))
        await broker.until_rows({})
        assert broker.items("store_1") == [b"committed"]
        assert "stop_envelope" not in broker.script.verbs("store_1")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"committed", b"for a successor"])


async def test_a_logout_is_answered_though_the_recipient_never_answers(journal: Journal) -> None:
    async with running(journal, trouble_after=2) as broker:
        role_id = broker.scribe.role_id("store_1")
        silent: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        await broker.register("store_1", xbus_take_event=silent)
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
        await broker.back.log_out(role_id, b"store_1", seconds=0)
        assert broker.back.is_registered(role_id)
        await broker.register("store_1")
        silent.set_exception(LOST)
