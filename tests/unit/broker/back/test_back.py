"""The whole back over a journal in memory: recipients come and go, and get what they are owed."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.back import PATIENCE_SECONDS, running
from tests.support.recipients import BROKEN, LOST, NEW, OLD, REFUSED, SILENT, Call, Script, metadata
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.run import context
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import read_consumers, read_registrations
from xbus.broker.journal.writes import Register, Write
from xbus.errors import Failed, JournalUnavailable, Refused, XbusError

# -- in the normal way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_a_consumer_gets_what_waits_and_what_comes(journal: Journal, kind: Abilities) -> None:
    async with running(journal) as broker:
        for number in range(3):
            await broker.put(b"%d" % number)
        await broker.register("store_1", kind)
        await broker.until(lambda: broker.items("store_1") == [b"0", b"1", b"2"])
        await broker.put(b"3")
        await broker.until(lambda: broker.items("store_1") == [b"0", b"1", b"2", b"3"])
    assert await broker.rows() == {}
    assert await broker.cursor() == 4


async def test_a_worker_stands_between(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.register("store_1")
        await broker.put(b"a", b"b", type_name="flights")
        await broker.until(lambda: broker.items("store_1") == [b"a", b"b"])
        assert broker.items("names_1") == [b"a", b"b"]


async def test_each_role_gets_everything_once(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        for number in range(5):
            await broker.put(b"%d" % number)
        await broker.register("store_2")
        await broker.until(lambda: len(broker.items("store_2")) == 5)
        await broker.put(b"5")
        await broker.until(lambda: broker.items("store_1") == broker.items("store_2") == [b"%d" % n for n in range(6)])


# -- absent ----------------------------------------------------------------------------------------------------------


async def test_what_needs_an_absent_worker_waits_and_the_rest_goes_on(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"flight", type_name="flights")
        await broker.put(b"note")
        await broker.until(lambda: broker.items("store_1") == [b"note"])
        await broker.until_rows({"store_1": ("waiting", 0, "worker_absent")})
        await broker.register("names_1")
        await broker.until(lambda: broker.items("store_1") == [b"note", b"flight"])
        await broker.until_rows({})
    assert "stop_envelope" not in broker.script.verbs("store_1")


async def test_two_workers_that_come_back_one_after_the_other(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"fare", type_name="fares")
        await broker.until_rows({"store_1": ("waiting", 0, "worker_absent")})
        for login in ("names_1", "prices_1"):
            assert broker.items("store_1") == []
            await broker.register(login)
        await broker.until(lambda: broker.items("store_1") == [b"fare"])
        await broker.until_rows({})


async def test_runs_of_one_envelope_do_not_mix_at_a_worker(journal: Journal) -> None:
    """Each of two roles has a row of its own by now, and the worker could do both at once."""
    async with running(journal) as broker:
        for login in ("store_1", "store_2"):
            await broker.register(login)
        await broker.put(b"flight", type_name="flights")
        waiting = ("waiting", 0, "worker_absent")
        await broker.until_rows({"store_1": waiting, "store_2": waiting})
        await broker.register("names_1", replace(NEW, envelopes=4))
        await broker.until_rows({})
        assert broker.items("store_1") == broker.items("store_2") == [b"flight"]
        verbs = [verb for verb in broker.script.verbs("names_1") if verb in ("xbus.take_event", "end_envelope")]
        assert verbs == ["xbus.take_event", "end_envelope"] * 2


async def test_a_consumer_that_was_away_goes_on_where_it_stood(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"0")
        await broker.until(lambda: broker.items("store_1") == [b"0"])
        await broker.leave("store_1")
        for number in (1, 2):
            await broker.put(b"%d" % number)
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"0", b"1", b"2"])


# -- failures --------------------------------------------------------------------------------------------------------


async def test_a_refusal_parks_and_the_next_goes_on(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", xbus_take_event=REFUSED)
        await broker.put(b"bad")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        client.answers = {}
        await broker.put(b"good")
        await broker.until(lambda: broker.items("store_1")[-1] == b"good")
    assert broker.script.verbs("store_1").count("stop_envelope") == 1
    assert await broker.cursor() == 2


async def test_a_refusal_parks_for_all_who_lack_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", xbus_take_event=REFUSED)
        await broker.register("store_2")
        await broker.until_together()
        await broker.put(b"bad")
        await broker.until_rows({"store_1": ("parked", 1, "refused"), "store_2": ("parked", 1, "refused")})


async def test_what_fails_is_tried_again_after_a_delay_and_may_go_well(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3, jitter=0)) as broker:
        client = await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.put(b"x")
        await broker.until_rows({"store_1": ("retry", 1, "error_reply")})
        client.answers = {}
        await broker.put(b"y")
        await broker.until(lambda: broker.items("store_1") == [b"x", b"y"])
        broker.pass_time(0.9)
        assert await broker.rows() == {"store_1": ("retry", 1, "error_reply")}
        broker.pass_time(0.1)
        await broker.until(lambda: broker.items("store_1") == [b"x", b"y", b"x"])
        await broker.until_rows({})


async def test_who_comes_back_gets_at_once_what_failed_before(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=300)) as broker:
        await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.put(b"x")
        await broker.until_rows({"store_1": ("retry", 1, "error_reply")})
        broker.clock.go_on(1)
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"x", b"x"])
        await broker.until_rows({})


async def test_what_waits_for_a_slot_is_not_counted_as_tried(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3)) as broker:
        client = await broker.register("store_1", xbus_take_event=SILENT)
        client.owes.clear()
        await broker.put(b"x")
        await broker.until_rows({"store_1": ("retry", 1, "timed_out")})
        broker.pass_time(10)
        for _ in range(100):
            await asyncio.sleep(0)
        assert await broker.rows() == {"store_1": ("retry", 1, "timed_out")}
        assert broker.items("store_1") == [b"x"]
        client.answers = {}
        client.owes.set()
        await broker.until(lambda: broker.items("store_1") == [b"x", b"x"])
        await broker.until_rows({})


async def test_one_in_trouble_is_parked_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.register("store_2")
        await broker.until_together()
        await broker.put(b"x")
        await broker.until(lambda: "end_envelope" in broker.script.verbs("store_2"))
        await broker.until_rows({"store_1": ("parked", 1, "error_reply")})


async def test_what_was_lost_comes_again_with_a_stop_before_it_and_not_for_ever(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3)) as broker:
        await broker.register("store_1", xbus_take_event=LOST)
        await broker.put(b"poison")
        while await broker.rows() != {"store_1": ("parked", 3, "connection_lost")}:
            broker.pass_time(10)
        verbs = [verb for verb in broker.script.verbs("store_1") if verb in ("xbus.take_event", "stop_envelope")]
        # Each attempt but the first is announced by a stop; each failed one is followed by another.
        assert verbs == [
            *("xbus.take_event", "stop_envelope"),
            *("stop_envelope", "xbus.take_event", "stop_envelope"),
            *("stop_envelope", "xbus.take_event", "stop_envelope"),
        ]


# -- trouble ---------------------------------------------------------------------------------------------------------


async def test_one_in_trouble_is_probed_and_nothing_is_parked(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(journal, retry=RetryPolicy(attempts=2), trouble_after=3) as broker:
        role_id = broker.scribe.role_id("store_1")
        client = await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.register("store_2")
        for number in range(8):
            await broker.put(b"%d" % number)
        # The other one gets all of them, and this one three.
        await broker.until(lambda: len(broker.items("store_2")) == 8)
        await broker.until(lambda: broker.back.breakers.is_troubled(role_id))
        assert broker.back.breakers[role_id].since == broker.clock.now()
        known = len(broker.items("store_1"))
        assert known == 3
        for probes in range(1, 10):
            broker.pass_time(30)
            await broker.until(lambda: len(broker.items("store_1")) == known + probes)  # noqa: B023
        assert broker.items("store_1")[known:] == [b"0", b"1", b"2"] * 3
        client.answers = {}
        broker.pass_time(30)
        await broker.until(lambda: not broker.back.breakers.is_troubled(role_id))
        broker.pass_time(1)
        await broker.until(lambda: set(broker.items("store_1")[known + 9 :]) == {b"%d" % number for number in range(8)})
        await broker.until_rows({})
        assert len(broker.items("store_1")) == known + 9 + 8
    told = [getattr(record, "action", "") for record in caplog.records if record.name.endswith("circuit_breaker")]
    assert told == ["troubled", "trouble_over"]


async def test_of_one_in_trouble_not_even_the_last_attempt_is_counted(journal: Journal) -> None:
    """With one attempt each, the two before it are parked, and what shows that it is in trouble is not."""
    async with running(journal, retry=RetryPolicy(attempts=1), trouble_after=3) as broker:
        role_id = broker.scribe.role_id("store_1")
        client = await broker.register("store_1", xbus_take_event=BROKEN)
        for number in range(5):
            await broker.put(b"%d" % number)
        await broker.until(lambda: broker.back.breakers.is_troubled(role_id))
        client.answers = {}
        broker.pass_time(30)
        await broker.until(lambda: broker.items("store_1")[3:] == [b"2", b"3", b"4"])
        await broker.until_rows({"store_1": ("parked", 1, "error_reply")})


async def test_who_comes_back_in_trouble_is_probed_at_once(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=3), trouble_after=2) as broker:
        role_id = broker.scribe.role_id("store_1")
        await broker.register("store_1", xbus_take_event=LOST)
        for number in range(4):
            await broker.put(b"%d" % number)
        await broker.until(lambda: broker.back.breakers.is_troubled(role_id))
        await broker.leave("store_1")
        broker.pass_time(1)
        await broker.register("store_1")
        await broker.until_rows({})
        await broker.until(lambda: sorted(broker.items("store_1")[2:]) == [b"0", b"1", b"2", b"3"])
        assert not broker.back.breakers.is_troubled(role_id)


async def test_a_worker_in_trouble_is_let_have_an_event_now_and_then(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=2), trouble_after=3) as broker:
        names = broker.scribe.role_id("names_1")
        client = await broker.register("names_1", replace(NEW, envelopes=4), xbus_take_event=BROKEN)
        await broker.register("store_1")
        for number in range(6):
            await broker.put(b"%d" % number, type_name="flights")
        await broker.until(lambda: broker.back.breakers.is_troubled(names))
        await broker.put(b"note")
        # Its consumer is not in trouble, and gets what does not need it.
        await broker.until(lambda: broker.items("store_1")[-1:] == [b"note"])
        known = len(broker.items("names_1"))
        for probes in range(1, 5):
            broker.pass_time(30)
            await broker.until(lambda: len(broker.items("names_1")) == known + probes)  # noqa: B023
        client.answers = {}
        broker.pass_time(30)
        await broker.until(lambda: not broker.back.breakers.is_troubled(names))
        broker.pass_time(10)
        wanted = {b"note", *(b"%d" % number for number in range(6))}
        await broker.until(lambda: set(broker.items("store_1")) == wanted)
        await broker.until_rows({})


async def test_a_fault_of_the_broker_parks_and_the_next_goes_on(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        with monkeypatch.context() as patched:
            patched.setattr(context.BackRunContext, "items", lambda *_: None)
            await broker.put(b"x")
            await broker.until_rows({"store_1": ("parked", 1, "internal_error")})
        await broker.put(b"y")
        await broker.until(lambda: broker.items("store_1") == [b"y"])


# -- repeats ---------------------------------------------------------------------------------------------------------


async def test_what_comes_again_for_some_roles_reaches_no_others(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.register("store_2")
        first = await broker.put(b"x")
        await broker.until_rows({"store_1": ("parked", 1, "error_reply")})
        client.answers = {}
        store_1 = broker.scribe.role_id("store_1")
        await broker.write(await broker.scribe.again(first.envelope_id, [store_1]))
        await broker.put(b"y")
        await broker.until(lambda: broker.items("store_1") == [b"x", b"x", b"y"])
        await broker.until(lambda: broker.items("store_2") == [b"x", b"y"])
        # All come again for everybody, and so does what came again.
        await broker.write(await broker.scribe.again(first.envelope_id))
        await broker.until(lambda: broker.items("store_1")[3:] == broker.items("store_2")[2:] == [b"x"])
    assert await broker.rows() == {}
    assert await broker.cursor("store_2") == 4


async def test_what_a_crash_left_is_taken_up_before_anything_starts(journal: Journal) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        await broker.register("store_1", xbus_take_event=never)
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
    async with running(journal, clean=False, started=False) as broker:
        assert await broker.rows() == {"store_1": ("retry", 1, "broker_stopped")}


async def test_recovery_that_an_outage_broke_off_is_tried_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        await broker.register("store_1", xbus_take_event=never)
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
    outages = [JournalUnavailable("the database is away", "")]
    write = DeliveryLedger.write

    async def write_later(ledger: DeliveryLedger) -> None:
        if outages:
            raise outages.pop()
        await write(ledger)

    monkeypatch.setattr(DeliveryLedger, "write", write_later)
    async with running(journal, clean=False, started=False) as broker:
        assert await broker.rows() == {"store_1": ("retry", 1, "broker_stopped")}
    assert not outages


async def test_after_a_crash_too_what_comes_again_for_some_roles_reaches_no_others(journal: Journal) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        client = await broker.register("store_1", xbus_take_event=BROKEN)
        await broker.register("store_2")
        first = await broker.put(b"x")
        await broker.until_rows({"store_1": ("parked", 1, "error_reply")})
        client.answers = {"xbus.take_event": never}
        await broker.write(await broker.scribe.again(first.envelope_id, [broker.scribe.role_id("store_1")]))
        await broker.until(lambda: broker.items("store_1") == [b"x", b"x"])
    async with running(journal) as broker:
        assert await broker.rows() == {"store_1": ("retry", 1, "broker_stopped")}
        await broker.register("store_1")
        await broker.register("store_2")
        await broker.put(b"y")
        await broker.until(lambda: broker.items("store_2") == [b"y"])
        await broker.until(lambda: sorted(broker.items("store_1")) == [b"x", b"y"])


# -- restarts --------------------------------------------------------------------------------------------------------


async def test_after_a_clean_stop_nothing_is_in_doubt(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"0")
        await broker.until(lambda: broker.items("store_1") == [b"0"])
    async with running(journal) as broker:
        assert await broker.rows() == {}
        await broker.put(b"1")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"1"])
        assert "stop_envelope" not in broker.script.verbs("store_1")


async def test_after_a_crash_what_was_under_way_comes_again_with_a_stop_before_it(journal: Journal) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        await broker.register("store_1", xbus_take_event=never)
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
    async with running(journal) as broker:
        assert await broker.rows() == {"store_1": ("retry", 1, "broker_stopped")}
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
        await broker.until_rows({})
        verbs = broker.script.verbs("store_1")
        assert verbs.index("stop_envelope") < verbs.index("xbus.take_event")


async def test_what_takes_too_long_at_a_stop_comes_again(journal: Journal) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        await broker.register("store_1", xbus_take_event=never)
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
        await broker.back.stop(0)
        assert broker.script.verbs("store_1")[-1] == "stop_envelope"
    async with running(journal) as broker:
        assert await broker.rows() == {"store_1": ("retry", 1, "broker_stopped")}


async def test_who_registers_while_the_broker_stops_gets_nothing_that_would_be_broken_off(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await broker.put(b"x")
        registering = asyncio.create_task(broker.register("store_1", get_metadata=said))
        await broker.until(lambda: broker.script.verbs("store_1"))
        await broker.back.stop(PATIENCE_SECONDS)
        said.set_result(metadata(NEW))
        with pytest.raises(Failed, match="is stopping") as caught:
            await registering
        assert caught.value.code == "broker_stopping"
        assert broker.items("store_1") == []
        # The next broker would take it up while it registers by itself, which breaks off what it was given.
        assert await journal.read(read_registrations) == []


async def test_recipients_are_taken_up_again(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.register("names_1")
    async with running(journal, prepared=lambda broker: broker.prepare("store_1")) as broker:
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])
        assert not broker.back.is_registered(broker.scribe.role_id("names_1"))


async def test_recipients_that_are_taken_up_again_introduce_themselves_anew(journal: Journal) -> None:
    async def names() -> list[str]:
        return [consumer.metadata["name"] for consumer in await journal.read(read_consumers)]

    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.register("store_2")
        assert await names() == ["scripted", "scripted"]
    renamed = {**metadata(NEW), "name": "renamed"}
    async with running(journal, prepared=lambda broker: broker.prepare("store_1", get_metadata=renamed)):
        while await names() != ["renamed"]:
            await asyncio.sleep(0)
        assert len(await journal.read(read_registrations)) == 2


# -- registrations ---------------------------------------------------------------------------------------------------


async def test_a_registration_is_durable_until_its_recipient_leaves(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        (registration,) = await journal.read(read_registrations)
        assert (registration.uri, registration.token_hash) == ("tcp://store_1", b"store_1")
        await broker.leave("store_1")
        assert await journal.read(read_registrations) == []
        assert broker.clients["tcp://store_1"].closed


async def test_a_newer_recipient_takes_the_place_of_an_older(journal: Journal) -> None:
    async with running(journal) as broker:
        older = await broker.register("store_1")
        newer = await broker.register("store_1")
        assert (older.closed, newer.closed) == (True, False)
        assert len(await journal.read(read_registrations)) == 1


async def test_a_lost_connection_ends_a_registration(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        broker.lost["tcp://store_1"]()
        role_id = broker.scribe.role_id("store_1")
        await broker.until(lambda: not broker.back.is_registered(role_id))


async def test_a_connection_lost_while_it_registers_is_no_registration(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = journal.write
    async with running(journal) as broker:

        def write_and_lose(what: Write[None], *, promises: bool = True) -> "asyncio.Future[None]":
            if isinstance(what, Register):
                broker.lost["tcp://store_1"]()
            return write(what, promises=promises)

        monkeypatch.setattr(journal, "write", write_and_lose)
        with pytest.raises(Refused) as caught:
            await broker.register("store_1")
        assert caught.value.code == "recipient_unreachable"
        assert not broker.back.is_registered(broker.scribe.role_id("store_1"))
        assert broker.clients["tcp://store_1"].closed


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"get_metadata": None}, "recipient_nonsense"),
        ({"get_metadata": {}}, "recipient_nonsense"),
        ({"get_metadata": {**metadata(OLD), "version": "1.0"}}, "recipient_nonsense"),
        ({"get_metadata": {**metadata(OLD), "version": True}}, "recipient_nonsense"),
        ({"has_clearing": True}, "recipient_nonsense"),
        ({"has_immediate_reply": [1, None]}, "recipient_nonsense"),
        ({"get_metadata": LOST}, "recipient_failed"),
        ({"has_clearing": BROKEN}, "recipient_failed"),
    ],
)
async def test_who_does_not_introduce_itself_properly_is_refused(
    journal: Journal, answers: dict[str, Any], code: str
) -> None:
    async with running(journal) as broker:
        with pytest.raises(Refused) as caught:
            await broker.register("store_1", **answers)
        assert caught.value.code == code
        assert broker.clients["tcp://store_1"].closed
        assert await journal.read(read_registrations) == []


async def test_an_address_where_nobody_listens(journal: Journal) -> None:
    async with running(journal) as broker:
        with pytest.raises(XbusError):
            await broker.back.register(broker.scribe.role_id(), b"", "tcp://nowhere")


async def test_a_role_that_was_removed_can_not_register(journal: Journal) -> None:
    async with running(journal) as broker:
        with pytest.raises(Refused) as caught:
            await broker.back.register(4711, b"", "tcp://nowhere")
        assert caught.value.code == "session_unknown"


def test_calls_are_told_by_whom_they_were_for() -> None:
    """The scripted recipients themselves."""
    script = Script([Call("a", "ping", ("x",)), Call("b", "ping", ("y",))])
    assert script.order("ping") == ["a", "b"]
    assert script.verbs("b") == ["ping"]


async def test_a_role_is_introduced_by_one_connection_at_a_time(journal: Journal) -> None:
    """Else its recipient could take for the newest connection one by which it is not called."""
    async with running(journal) as broker:
        said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        first = asyncio.create_task(broker.register("store_1", get_metadata=said))
        second = asyncio.create_task(broker.register("store_1"))
        await asyncio.sleep(0)
        assert broker.script.verbs("store_1") == ["get_metadata"]
        said.set_result(metadata(NEW))
        await asyncio.gather(first, second)
        assert broker.script.verbs("store_1").count("get_metadata") == 2
