"""Logins and what they are good for, with a clock that stands still."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.journal import NOW, Scribe, memory_engine
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus import model
from xbus.broker.journal.api_tokens import add_api_token, list_api_tokens, revoke_api_token
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.configuration.logins import set_password
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import TICKETS
from xbus.broker.journal.log.sessions import count_sessions, read_credentials, read_sessions
from xbus.broker.journal.writes import RenewSessions
from xbus.broker.logins import LOGINS_AT_ONCE, Credentials
from xbus.broker.logins.credentials import HASHING_NICENESS
from xbus.broker.sessions import SessionLifetimes, Sessions
from xbus.errors import Failed, JournalUnavailable, Refused
from xbus.ids import Ids, token_hash
from xbus.passwords import Passwords

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
CHEAPER = PasswordHasher(time_cost=1, memory_cost=16, parallelism=1)


class Porter:
    """Sessions, and what they stand on."""

    def __init__(self, journal: Journal, scribe: Scribe) -> None:
        self.journal = journal
        self.scribe = scribe
        self.clock = StandingClock()
        self.busy: set[int] = set()
        self.passwords = Passwords(CHEAP)
        self.lifetimes = SessionLifetimes(60)
        self.sessions = self.anew()

    def anew(self, hasher: PasswordHasher = CHEAP, passwords: Passwords | None = None) -> Sessions:
        """As after a restart."""
        self.sessions = Sessions(
            self.journal,
            Credentials(self.journal, "emitter", passwords or Passwords(hasher), self.clock),
            clock=self.clock,
            ids=Ids(self.clock),
            lifetimes=self.lifetimes,
            in_use=self.busy.__contains__,
        )
        return self.sessions

    @property
    def north(self) -> int:
        return self.scribe.emitter_id("north")


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    engine = memory_engine()
    with engine.begin() as connection:
        set_password(connection, "emitter", "north", Passwords(CHEAP).hash_password("secret"), NOW)
    async with Journal(engine, "broker") as journal:
        yield journal


@pytest.fixture
async def porter(journal: Journal) -> Porter:
    return Porter(journal, await Scribe.of(journal))


def is_unknown(sessions: Sessions, token: str) -> bool:
    try:
        sessions.owner(token)
    except Refused as refusal:
        assert refusal.code == "session_unknown"
        return True
    return False


async def test_a_login_gives_a_token_of_which_the_hash_is_kept(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    assert porter.sessions.owner(token) == porter.north
    (stored,) = await porter.journal.read(read_sessions, of_roles=False)
    assert (stored.token_hash, stored.owner_id) == (token_hash(token), porter.north)


@pytest.mark.parametrize(
    ("login", "password"),
    [("north", "wrong"), ("nobody", "secret"), ("south", "secret"), ("", ""), ("north\0", "secret"), ("store_1", "")],
)
async def test_all_refusals_of_a_login_are_the_same(porter: Porter, login: str, password: str) -> None:
    with pytest.raises(Refused) as caught:
        await porter.sessions.login(login, password)
    assert (caught.value.code, caught.value.cause) == ("login_refused", "the login or the password is wrong")


async def test_a_wrong_ticket_takes_as_long_as_a_wrong_password(porter: Porter) -> None:
    await porter.journal.run(
        lambda connection: connection.execute(sa.update(model.emitter).values(password_hash=TICKETS))
    )
    checked: list[str | None] = []

    class Counting(Passwords):
        def verify(self, password: str, password_hash: str | None) -> bool:
            checked.append(password_hash)
            return super().verify(password, password_hash)

    sessions = porter.anew(passwords=Counting(CHEAP))
    with pytest.raises(Refused):
        await sessions.login("north", "guessed")
    assert checked == [None]


@pytest.mark.skipif(sys.platform != "linux", reason="there threads have a priority of their own")
async def test_the_first_try_of_a_login_has_the_priority_of_the_broker(porter: Porter) -> None:
    """While other programs compute, a password at a low priority takes longer than its caller waits."""
    priorities: list[int] = []

    class Noting(Passwords):
        def verify(self, password: str, password_hash: str | None) -> bool:
            priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().verify(password, password_hash)

    sessions = porter.anew(passwords=Noting(CHEAP))
    for _ in range(3):
        await sessions.login("north", "secret")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert priorities == [own, max(own, HASHING_NICENESS), max(own, HASHING_NICENESS)]


async def test_no_secret_is_logged(porter: Porter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = await porter.sessions.login("north", "secret")
    with pytest.raises(Refused):
        await porter.sessions.login("north", "hidden")
    await porter.sessions.logout(token)
    said = " ".join(str(record.__dict__) for record in caplog.records)
    assert "logged out" in said
    for secret in ("secret", "hidden", token):
        assert secret not in said


async def test_a_removed_emitter_can_not_log_in(porter: Porter) -> None:
    def remove(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.emitter).values(removed_at=porter.clock.now()))

    await porter.journal.read(remove)
    with pytest.raises(Refused):
        await porter.sessions.login("north", "secret")


async def test_a_session_outlives_its_last_use_by_its_lifetime(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    for _ in range(3):
        porter.clock.go_on(59)
        assert porter.sessions.owner(token) == porter.north
    porter.clock.go_on(60)
    assert is_unknown(porter.sessions, token)


async def test_a_session_does_not_expire_under_what_its_owner_holds(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    porter.busy.add(porter.north)
    porter.clock.go_on(1000)
    await porter.sessions.save()
    assert porter.sessions.owner(token) == porter.north
    porter.busy.clear()
    porter.clock.go_on(60)
    assert is_unknown(porter.sessions, token)


async def test_a_logout_ends_a_session_for_good(porter: Porter) -> None:
    token, other = await porter.sessions.login("north", "secret"), await porter.sessions.login("north", "secret")
    assert await porter.sessions.logout(token) == porter.north
    assert is_unknown(porter.sessions, token)
    assert porter.sessions.owner(other) == porter.north
    with pytest.raises(Refused):
        await porter.sessions.logout(token)
    await porter.anew().restore()
    assert is_unknown(porter.sessions, token)


async def test_a_token_that_nobody_was_given(porter: Porter) -> None:
    assert is_unknown(porter.sessions, "")
    assert is_unknown(porter.sessions, "\ud800")


async def test_a_restart_disturbs_nobody(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    porter.clock.go_on(50)
    porter.sessions.owner(token)
    await porter.sessions.save()
    await porter.anew().restore()
    porter.clock.go_on(59)
    assert porter.sessions.owner(token) == porter.north


async def test_what_has_expired_is_forgotten(porter: Porter) -> None:
    await porter.sessions.login("north", "secret")
    porter.clock.go_on(61)
    await porter.sessions.save()
    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_sessions_of_others_are_not_taken_up(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    roles = Sessions(
        porter.journal,
        Credentials(porter.journal, "role", porter.passwords, porter.clock),
        clock=porter.clock,
        ids=Ids(porter.clock),
        lifetimes=SessionLifetimes(60),
    )
    await roles.restore()
    assert is_unknown(roles, token)
    with pytest.raises(Refused):
        await roles.login("north", "secret")


async def test_a_password_hash_of_another_cost_is_made_anew(porter: Porter) -> None:
    before = await porter.journal.read(read_credentials, "emitter", "north")
    await porter.sessions.login("north", "secret")
    assert await porter.journal.read(read_credentials, "emitter", "north") == before
    await porter.anew(CHEAPER).login("north", "secret")
    after = await porter.journal.read(read_credentials, "emitter", "north")
    assert after is not None
    assert after != before
    assert Passwords(CHEAPER).verify("secret", after[1])
    assert not Passwords(CHEAPER).needs_rehash(after[1])


async def test_a_session_that_could_not_be_kept_is_none(porter: Porter) -> None:
    with Faults(porter.journal._engine).before_commit(skipped=1):  # the first is that of reading the password
        with pytest.raises(JournalUnavailable):
            await porter.sessions.login("north", "secret")
    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_an_outage_delays_saving(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    porter.clock.go_on(50)
    porter.sessions.owner(token)
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.save()
    await porter.sessions.save()
    (stored,) = await porter.journal.read(read_sessions, of_roles=False)
    assert (stored.expires_at - porter.clock.now()).total_seconds() == 60


async def test_many_logins_at_once(porter: Porter) -> None:
    tokens = await asyncio.gather(*(porter.sessions.login("north", "secret") for _ in range(10)))
    assert len(set(tokens)) == 10
    assert all(porter.sessions.owner(token) == porter.north for token in tokens)


async def test_a_login_that_waited_for_too_long_is_not_checked(porter: Porter) -> None:
    checked: list[str] = []

    def verify(password: str, password_hash: str | None) -> bool:
        checked.append(password)
        return True

    porter.passwords.verify = verify  # type: ignore[method-assign]
    sessions = porter.anew(passwords=porter.passwords)

    with pytest.raises(Failed) as caught:
        await sessions.login("north", "secret", 0)

    assert (caught.value.code, checked) == ("login_too_late", [])
    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_a_login_that_waits_for_its_turn_gives_up_in_time(porter: Porter) -> None:
    gate = threading.Event()
    porter.passwords.verify = lambda *of: gate.wait(DEADLINE_SECONDS)  # type: ignore[method-assign]
    sessions = porter.anew(passwords=porter.passwords)
    before = [asyncio.create_task(sessions.login("north", "secret", DEADLINE_SECONDS)) for _ in range(LOGINS_AT_ONCE)]
    await asyncio.sleep(0)

    with pytest.raises(Failed) as caught:
        await sessions.login("north", "secret", 0.01)

    assert caught.value.code == "login_too_late"
    gate.set()
    assert len({*await asyncio.gather(*before)}) == LOGINS_AT_ONCE
    assert len(await porter.journal.read(read_sessions, of_roles=False)) == LOGINS_AT_ONCE


async def test_a_password_that_was_checked_too_late_begins_no_session(porter: Porter) -> None:
    now = asyncio.get_running_loop().time

    def check_slowly(password: str, password_hash: str | None) -> bool:
        deadline = now() + 0.05
        while now() < deadline:
            pass
        return True

    porter.passwords.verify = check_slowly  # type: ignore[method-assign]

    with pytest.raises(Failed):
        await porter.anew(passwords=porter.passwords).login("north", "secret", 0.05)

    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_an_outage_delays_the_end_of_what_has_expired(porter: Porter) -> None:
    await porter.sessions.login("north", "secret")
    porter.clock.go_on(61)
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.save()
    await porter.sessions.save()
    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_an_outage_delays_the_end_of_a_lost_owner(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.end(token_hash(token))
    assert is_unknown(porter.sessions, token)
    await porter.sessions.save()
    assert await porter.journal.read(read_sessions, of_roles=False) == []


async def test_a_token_that_reached_nobody_is_taken_back(porter: Porter) -> None:
    token, other = await porter.sessions.login("north", "secret"), await porter.sessions.login("north", "secret")
    porter.busy.add(porter.north)
    porter.sessions.take_back(token)
    assert is_unknown(porter.sessions, token)
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.save()
    await porter.sessions.save()
    assert [stored.token_hash for stored in await porter.journal.read(read_sessions, of_roles=False)] == [
        token_hash(other)
    ]


async def test_the_last_save_waits_for_one_that_is_under_way(porter: Porter) -> None:
    """1. A periodic save writes an act. 2. The broker stops, and saves too. 3. Each forgets what was written."""
    porter.sessions.take_back(await porter.sessions.login("north", "secret"))
    await asyncio.gather(porter.sessions.save(), porter.sessions.save(is_last=True))
    assert await porter.journal.read(read_sessions, of_roles=False) == []
    assert [action for action, _, _ in await read_audit(porter.journal)] == ["login_accepted"]


async def test_sessions_that_an_administrator_ended_are_unknown(porter: Porter) -> None:
    ended, kept = await porter.sessions.login("north", "secret"), await porter.sessions.login("north", "secret")
    with porter.journal._engine.begin() as connection:
        connection.execute(sa.delete(model.session).where(model.session.c.token_hash == token_hash(ended)))
    told: list[set[bytes]] = []

    async def tell(hashes: set[bytes]) -> None:
        told.append(hashes)

    watch = asyncio.create_task(porter.sessions.watch(tell))
    porter.sessions.configuration_changed()
    await eventually(lambda: told, "it is noticed")
    watch.cancel()
    assert told == [{token_hash(ended)}]
    assert is_unknown(porter.sessions, ended)
    assert not is_unknown(porter.sessions, kept)


async def read_audit(journal: Journal) -> list[tuple[str, str, str]]:
    rows = await journal.read(list_acts, AuditFilters(), 100)
    return [(row.act.action, row.act.who, row.act.object) for row in rows if row.act.action.startswith("login")]


async def test_the_audit_keeps_who_logged_in_and_who_was_refused(porter: Porter) -> None:
    await porter.sessions.login("north", "secret")
    with pytest.raises(Refused):
        await porter.sessions.login("north", "wrong")
    assert await read_audit(porter.journal) == []

    await porter.sessions.save()

    assert await read_audit(porter.journal) == [
        ("login_refused", "north", 'emitter "north"'),
        ("login_accepted", "north", 'emitter "north"'),
    ]


async def test_log_ins_are_written_when_the_database_is_back(porter: Porter) -> None:
    await porter.sessions.login("north", "secret")
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.save()
    await porter.sessions.save()
    assert [action for action, _, _ in await read_audit(porter.journal)] == ["login_accepted"]


async def test_a_session_ends_at_the_latest_when_its_hours_are_over(porter: Porter) -> None:
    porter.lifetimes = SessionLifetimes(60, 100)
    sessions = porter.anew()
    token = await sessions.login("north", "secret")
    porter.busy.add(porter.north)
    porter.clock.go_on(50)
    assert sessions.owner(token) == porter.north
    # Renewed, and taken up by another run: the begin counts.
    await sessions.save()
    sessions = porter.anew()
    await sessions.restore()
    porter.clock.go_on(49)
    assert sessions.owner(token) == porter.north
    (seen,) = await porter.journal.read(count_sessions, porter.clock.now())
    assert seen.expires_at <= NOW + timedelta(seconds=100)
    porter.clock.go_on(1)
    assert is_unknown(sessions, token)
    await sessions.save()
    assert await porter.journal.read(read_sessions, of_roles=False) == []
    assert sessions.owner(await sessions.login("north", "secret")) == porter.north


async def test_a_session_of_before_its_begin_was_kept_begins_when_it_is_taken_up(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")

    def forget(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.session).values(started_at=None, expires_at=NOW + timedelta(hours=9)))

    await porter.journal.run(forget)
    porter.lifetimes = SessionLifetimes(3600, 7200)
    porter.clock.go_on(3000)
    sessions = porter.anew()
    await sessions.restore()
    for _ in range(2):
        porter.clock.go_on(3500)
        assert sessions.owner(token) == porter.north
    porter.clock.go_on(200)
    assert is_unknown(sessions, token)


async def test_an_api_token_is_a_session_without_an_end(porter: Porter) -> None:
    def in_database(act: Callable[[sa.Connection], str | None]) -> str | None:
        with porter.journal._engine.begin() as connection:
            return act(connection)

    token = in_database(lambda connection: add_api_token(connection, "shop", emitter="north", at=NOW))
    assert token is not None
    assert is_unknown(porter.sessions, token)
    assert await porter.sessions.end_removed() == set()
    porter.clock.go_on(10**7)
    assert porter.sessions.owner(token) == porter.north
    with pytest.raises(Refused) as refusal:
        await porter.sessions.logout(token)
    assert refusal.value.code == "token_stays"
    await porter.sessions.end(token_hash(token))
    await porter.sessions.save()
    porter.anew()
    await porter.sessions.restore()
    assert porter.sessions.knows(token)
    in_database(lambda connection: revoke_api_token(connection, "shop", NOW))
    assert await porter.sessions.end_removed() == {token_hash(token)}
    assert is_unknown(porter.sessions, token)


async def test_an_outage_delays_the_note_of_a_used_api_token(porter: Porter) -> None:
    with porter.journal._engine.begin() as connection:
        token = add_api_token(connection, "shop", emitter="north", at=NOW)
    await porter.sessions.end_removed()
    porter.sessions.owner(token)
    with Faults(porter.journal._engine).before_commit():
        await porter.sessions.save()
    await porter.sessions.save()
    (noted,) = await porter.journal.read(list_api_tokens)
    assert noted.used_at == porter.clock.now()


async def test_a_logout_is_no_session_that_somebody_else_has_ended(porter: Porter) -> None:
    """The last calls of who logs out would be broken off.

    1. The journal ends the session. 2. A change of the configuration has sessions compared with those of the journal.
    3. The session is gone there, and known here still.
    """
    token = await porter.sessions.login("north", "secret")
    logging_out = asyncio.ensure_future(porter.sessions.logout(token))
    await asyncio.sleep(0)
    ended = [await porter.sessions.end_removed() for _ in range(3)]
    assert await logging_out == porter.north
    assert ended == [set()] * 3


async def test_a_logout_that_cannot_be_written_ends_nothing(porter: Porter) -> None:
    token = await porter.sessions.login("north", "secret")
    with Faults(porter.journal._engine).before_commit():
        with pytest.raises(JournalUnavailable):
            await porter.sessions.logout(token)
        assert porter.sessions.owner(token) == porter.north


async def test_a_use_while_renewals_are_written_is_written_next(
    porter: Porter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Renewals are written. 2. A session is used. 3. The write is answered."""
    token = await porter.sessions.login("north", "secret")
    porter.sessions.owner(token)

    def write_while_used(write: RenewSessions) -> "asyncio.Future[None]":
        monkeypatch.undo()
        writing = porter.journal.write(write)
        porter.clock.go_on(1)
        porter.sessions.owner(token)
        return writing

    monkeypatch.setattr(porter.journal, "write", write_while_used)
    await porter.sessions.save()
    await porter.sessions.save()
    (stored,) = await porter.journal.read(read_sessions, of_roles=False)
    assert stored.expires_at == porter.clock.now() + timedelta(seconds=60)
