"""The back calls who registered where the journal is, and others when an operator says so."""

from collections.abc import Sequence

import sqlalchemy as sa

from tests.support.back import running
from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from tests.support.recipients import NEW, metadata
from xbus import model
from xbus.broker.back.recipients.own_registrations import PROBLEM, OwnRegistrations
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import StoredRegistration
from xbus.broker.journal.operations import copies
from xbus.broker.journal.writes import Register
from xbus.supervision.health import Health


async def registered(journal: Journal, login: str, place: str) -> StoredRegistration:
    role_id = (await Scribe.of(journal)).role_id(login)
    await journal.write(Register(role_id, login.encode(), f"tcp://{login}", place, NOW, metadata(NEW), {}))
    return StoredRegistration(role_id, login.encode(), f"tcp://{login}", place)


async def test_who_registered_elsewhere_is_not_called(journal: Journal) -> None:
    await registered(journal, "store_1", "elsewhere")
    await registered(journal, "names_1", "in memory")
    async with running(journal, prepared=lambda it: [it.prepare(login) for login in ("store_1", "names_1")]) as broker:
        await broker.until(lambda: broker.back.is_registered(broker.scribe.role_id("names_1")))
        assert broker.script.verbs("store_1") == []
        (problem,) = broker.health.problems
        assert problem.code == PROBLEM
        assert problem.cause == (
            "1 recipient, which is not called, registered at elsewhere; this journal is at in memory and may be a copy"
        )
        # One that comes by itself is served.
        await broker.register("store_1")
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_1") == [b"x"])


async def test_what_an_operator_adopts_is_passed_on_once(journal: Journal) -> None:
    foreign = await registered(journal, "store_1", "elsewhere")
    own = await registered(journal, "names_1", "in memory")
    health = Health("back", StandingClock())
    registrations = OwnRegistrations(journal, health, look_seconds=0)
    assert registrations.own(await registrations.read()) == [own]
    assert not health.healthy

    passed_on: list[StoredRegistration] = []

    def resume(found: Sequence[StoredRegistration]) -> None:
        passed_on.extend(found)

    await journal.run(copies.adopt, "restored", NOW)
    await registrations.watch(resume)
    assert [it.role_id for it in passed_on] == [foreign.role_id]
    assert health.healthy


async def test_who_registers_anew_is_not_passed_on(journal: Journal) -> None:
    await registered(journal, "store_1", "elsewhere")
    health = Health("back", StandingClock())
    registrations = OwnRegistrations(journal, health, look_seconds=0)
    registrations.own(await registrations.read())

    def renew(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.registration).values(place="in memory", token_hash=b"another"))

    await journal.run(renew)
    passed_on: list[StoredRegistration] = []
    await registrations.watch(passed_on.extend)
    assert passed_on == []
    assert health.healthy


async def test_a_registration_holds_until_another_one_takes_its_place(journal: Journal) -> None:
    older = await registered(journal, "store_1", "in memory")
    registrations = OwnRegistrations(journal, Health("back", StandingClock()))
    assert await registrations.holds(older)
    await journal.write(Register(older.role_id, b"newer", older.uri, "in memory", NOW, metadata(NEW), {}))
    assert not await registrations.holds(older)


async def test_sessions_are_needed_until_an_operator_has_decided(journal: Journal) -> None:
    """Who is called after all must find its session, which it may have had no reason to use for long."""
    foreign = await registered(journal, "store_1", "elsewhere")
    async with running(journal) as broker:
        assert broker.back.needs_session(foreign.role_id)
        assert not broker.back.needs_session(broker.scribe.role_id("names_1"))
