"""Recipients as the back watches them: heartbeats, who was displaced, what operators see, and who stays away."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.back import PATIENCE_SECONDS, Broker, running
from tests.support.clock import StandingClock
from tests.support.journal import NOW
from tests.support.recipients import NEW
from xbus.broker.back.monitoring.overdue import DAY_SECONDS, OverdueBacklog
from xbus.broker.back.monitoring.presence import CALLING_SECONDS, Presence, RecipientSigns
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.configuration import Configuration
from xbus.broker.journal.configuration import detaching
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import RunnerEntry
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.errors import Refused
from xbus.rpc.owed_calls import OverdueCall
from xbus.states import PresenceState
from xbus.supervision.health import Health

LATE_SECONDS = 1_000
"""Longer than any test takes."""


async def standing(broker: Broker, login: str = "store_1") -> RoleStatus:
    return next(role for role in await broker.journal.read(list_roles) if role.role == login)


async def change(broker: Broker, what: Any, *args: Any) -> None:
    await broker.journal._writer.run(lambda connection: what(connection, *args))


# -- heartbeats ------------------------------------------------------------------------------------------------------


async def test_a_heartbeat_tells_whether_one_is_registered(journal: Journal) -> None:
    async with running(journal) as broker:
        role_id = broker.scribe.role_id()
        assert not broker.back.heartbeat(role_id, b"store_1", [])
        await broker.register("store_1")
        assert broker.back.heartbeat(role_id, b"store_1", [])
        assert not broker.back.heartbeat(role_id, b"another session", [])
        await broker.leave("store_1")
        assert not broker.back.heartbeat(role_id, b"store_1", [])


async def test_one_that_is_being_taken_up_again_need_not_register(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(
        journal, prepared=lambda broker: broker.prepare("store_1", get_metadata=never), clean=False
    ) as broker:
        role_id = broker.scribe.role_id()
        assert not broker.back.is_registered(role_id)
        assert broker.back.heartbeat(role_id, b"store_1", [])
        assert not broker.back.heartbeat(role_id, b"another session", [])


async def test_one_whose_place_is_taken_is_told_so(journal: Journal) -> None:
    async with running(journal) as broker:
        role_id = broker.scribe.role_id()
        await broker.register("store_1")
        broker.back.check_in_place(b"store_1")
        await broker.leave("store_1")
        broker.back.check_in_place(b"store_1")
        broker.prepare("store_1")
        await broker.back.register(role_id, b"a newer session", "tcp://store_1")
        with pytest.raises(Refused) as refused:
            broker.back.check_in_place(b"store_1")
        assert refused.value.code == "displaced"
        broker.back.check_in_place(b"a newer session")


async def test_time_outs_of_one_that_sends_heartbeats_begin_anew(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", Abilities(batches=True, heartbeats=True))
        await broker.register("store_2", NEW)
        told = [broker.back.registry.get(broker.scribe.role_id(login)) for login in ("store_1", "store_2")]
        assert [recipient is not None and recipient.abilities.heartbeats for recipient in told] == [True, False]


# -- what operators see ----------------------------------------------------------------------------------------------


def presence_of(
    broker: Broker,
    configuration: Configuration,
    silent: set[str],
    troubled: set[int],
    health: Health | None = None,
) -> Presence:
    clock = StandingClock()
    return Presence(
        broker.journal,
        configuration,
        broker.back.registry,
        health or Health("back", clock),
        clock,
        RecipientSigns(
            lambda recipient: recipient.role.login in silent, troubled.__contains__, answer_seconds=LATE_SECONDS
        ),
    )


async def test_a_call_that_stays_in_hand_behind_its_time_out_is_a_problem(journal: Journal) -> None:
    """Its slot is not free until the answer, so the role may stand still while its heartbeats go on."""
    configuration = Configuration(journal)
    await configuration.refresh()
    now = asyncio.get_running_loop().time
    async with running(journal) as broker:
        client = await broker.register("store_1")
        await broker.register("store_2")
        health = Health("back", broker.clock)
        presence = presence_of(broker, configuration, set(), set(), health)

        async def look(*overdue: OverdueCall) -> list[tuple[str, str]]:
            client.timed_out = [*overdue]
            await presence.note()
            return [(problem.code, problem.about) for problem in health.problems]

        assert await look() == []
        assert await look(OverdueCall("ping", now() - 100)) == []
        assert await look(OverdueCall("end_envelope", now())) == []
        assert await look(OverdueCall("end_envelope", now() - LATE_SECONDS - 1)) == [("call_unanswered", "store_1")]
        assert await look() == []


async def test_roles_whose_programs_call_the_bus_are_present_while_they_call(journal: Journal) -> None:
    """Programs of readers, runners of bots and gateways: nobody registers for their roles."""
    configuration = Configuration(journal)
    await configuration.refresh()
    async with running(journal) as broker:
        reader, runner = (broker.scribe.role_id(login) for login in ("store_1", "store_2"))
        roles = configuration.catalog.roles
        catalog = replace(
            configuration.catalog,
            roles={},
            reader_roles={reader: roles[reader]},
            runners={runner: RunnerEntry(runner, "store_2", 1, is_gateway=True)},
        )
        heard: dict[int, datetime] = {}
        clock = StandingClock()
        signs = RecipientSigns(lambda recipient: False, lambda role_id: False, heard=lambda: heard)
        presence = Presence(
            journal,
            cast(Configuration, SimpleNamespace(catalog=catalog)),
            broker.back.registry,
            Health("back", clock),
            clock,
            signs,
        )

        async def look() -> list[PresenceState]:
            await presence.note()
            return [(await standing(broker, login)).state for login in ("store_1", "store_2")]

        assert await look() == [PresenceState.ABSENT] * 2
        heard |= {reader: clock.now(), runner: clock.now()}
        assert await look() == [PresenceState.PRESENT] * 2
        clock.go_on(CALLING_SECONDS + 1)
        heard[runner] = clock.now()
        assert await look() == [PresenceState.ABSENT, PresenceState.PRESENT]
        del heard[runner]
        assert await look() == [PresenceState.ABSENT] * 2
        assert (await standing(broker)).seen_at == clock.now() - timedelta(seconds=CALLING_SECONDS + 1)


async def test_each_change_is_written_down(journal: Journal) -> None:
    configuration = Configuration(journal)
    await configuration.refresh()
    silent: set[str] = set()
    troubled: set[int] = set()
    async with running(journal) as broker:
        presence = presence_of(broker, configuration, silent, troubled)
        await presence.restore()
        seen = []

        async def look() -> None:
            await presence.note()
            seen.append((await standing(broker)).state)

        await look()
        await broker.register("store_1")
        await look()
        troubled.add(broker.scribe.role_id())
        await look()
        silent.add("store_1")
        await look()
        await broker.leave("store_1")
        await look()
    assert seen == ["absent", "present", "troubled", "silent", "absent"]


async def test_what_it_works_on_is_written_down(journal: Journal) -> None:
    configuration = Configuration(journal)
    await configuration.refresh()
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with running(journal, clean=False) as broker:
        presence = presence_of(broker, configuration, set(), set())
        await broker.register("store_1", Abilities(batches=True, heartbeats=True), xbus_take_event=never)
        receipt = await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1"))
        envelope_id = str(receipt.envelope_id)
        broker.back.heartbeat(
            broker.scribe.role_id(), b"store_1", [{"envelope_id": envelope_id, "progress": 7, "done": 1, "of": 4}]
        )
        await presence.note()
        (work,) = (await standing(broker)).work
        assert work["since"]
        assert {name: value for name, value in work.items() if name != "since"} == {
            "envelope_id": envelope_id,
            "position": 1,
            "verb": "take_event",
            "progress": 7,
            "done": 1,
            "of": 4,
        }
        written = journal.commits.writes.sum
        await presence.note()
        assert journal.commits.writes.sum == written, "nothing new, nothing written"
        await presence.stop(PATIENCE_SECONDS)
        assert (await standing(broker)).state is PresenceState.ABSENT


async def test_after_a_restart_who_does_not_come_back_turns_absent(journal: Journal) -> None:
    configuration = Configuration(journal)
    await configuration.refresh()
    async with running(journal, clean=False) as broker:
        await broker.register("store_1")
        await presence_of(broker, configuration, set(), set()).note()
        assert (await standing(broker)).state is PresenceState.PRESENT
    async with running(journal) as broker:
        presence = presence_of(broker, configuration, set(), set())
        await presence.restore()
        await presence.note()
        shown = await standing(broker)
        assert (shown.state, shown.seen_at is not None) == (PresenceState.ABSENT, True)


# -- who stays away --------------------------------------------------------------------------------------------------


async def test_the_alarm_is_raised_once_a_day_and_ends_when_the_role_comes(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running(journal) as broker:
        clock = StandingClock()
        health = Health("back", clock)
        alarm = OverdueBacklog(journal, broker.back.registry, health, clock, owed_days=30)
        broker.back.events.arrived.subscribe(alarm.arrived)
        await broker.put(b"x")
        await alarm.look()
        assert health.healthy
        clock.go_on(timedelta(days=31).total_seconds())
        for pause in (0, 3600, DAY_SECONDS):
            clock.go_on(pause)
            await alarm.look()
        told = [record for record in caplog.records if getattr(record, "action", "") == "owed_too_long"]
        assert sorted(record.__dict__["role"] for record in told) == ["store_1", "store_1", "store_2", "store_2"]
        assert [problem.about for problem in health.problems] == ["store_1", "store_2"]
        assert "xbus recipient detach store_1" in health.problems[0].next_step
        await broker.register("store_1")
        assert [problem.about for problem in health.problems] == ["store_2"]
        await change(broker, detaching.detach, "store_2", "it was sold", NOW)
        await alarm.look()
        assert health.healthy


# -- detached roles --------------------------------------------------------------------------------------------------


async def test_a_detached_role_is_turned_away_and_gets_what_comes_after_it_was_attached(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"0")
        await broker.until(lambda: broker.items("store_1") == [b"0"])
        await broker.leave("store_1")
        await broker.put(b"1")
        await change(broker, detaching.detach, "store_1", "it was sold", NOW)
        await broker.configuration.refresh()
        with pytest.raises(Refused) as refused:
            await broker.register("store_1")
        assert refused.value.code == "role_detached"
        await broker.put(b"2")
        await change(broker, detaching.attach, "store_1", NOW)
        await broker.configuration.refresh()
        await broker.put(b"3")
        await broker.register("store_1")
        await broker.until(lambda: len(broker.items("store_1")) == 2)
        assert broker.items("store_1") == [b"0", b"3"]
        while await broker.cursor() != 4:
            await asyncio.sleep(0)


async def test_what_a_role_got_after_it_was_attached_is_stopped_after_a_crash(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        await broker.register("store_1")
        await broker.put(b"0")
        while await broker.cursor() != 1:
            await asyncio.sleep(0)
        await broker.leave("store_1")
        await change(broker, detaching.detach, "store_1", "it was sold", NOW)
        await broker.configuration.refresh()
        await broker.put(b"1")
        await change(broker, detaching.attach, "store_1", NOW)
        await broker.configuration.refresh()
        await broker.register("store_1", xbus_take_event=asyncio.get_running_loop().create_future())
        await broker.put(b"2")
        await broker.until(lambda: broker.items("store_1") == [b"0", b"2"])
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"2"])
        assert "stop_envelope" in broker.script.verbs("store_1")
