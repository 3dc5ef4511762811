"""The audit on every database: acts are kept with what they did, and the chain shows what was done to them since."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, small_bus
from xbus import model
from xbus.broker.journal.audit import (
    NO_HASH,
    Act,
    AuditFilters,
    AuditRow,
    ChainHead,
    RepairDecision,
    cut_older,
    hang_all,
    hang_new,
    list_acts,
    lock_head,
    note_acts,
    person,
    read_chain,
    read_head,
    verify,
)
from xbus.broker.journal.commit.statements import pauses
from xbus.broker.journal.configuration import SubscriptionSpec, apply, end_login, make_plan, read_stored, set_password
from xbus.broker.journal.configuration.pausing import pause, resume
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.writes import EndPauses, PauseKind
from xbus.errors import ConfigurationError, JournalError, Refused


def act(number: int, **values: str) -> Act:
    usual = {"who": "ada", "origin": "10.0.0.1", "action": "dropped", "object": f"envelope {number}"}
    return Act(NOW + timedelta(days=number), **{**usual, **values})


def fill(url: str, rows: int = 5) -> ChainHead:
    """Empty rows of the bus's own making are in front: the small bus was applied."""
    with writing(url) as connection:
        note_acts(connection, map(act, range(1, rows + 1)))
        return hang_all(connection)


def newest(url: str, **filters: str) -> list[Act]:
    with reading(url) as connection:
        return [row.act for row in list_acts(connection, AuditFilters(**filters), 100)]  # type: ignore[arg-type]


def rows_of(url: str) -> list[AuditRow]:
    with reading(url) as connection:
        return list(read_chain(connection, 0))


def faults(url: str, noted: ChainHead | None = None) -> tuple[str, ...]:
    with reading(url) as connection:
        return verify(connection, noted).faults


@contextmanager
def tampering(url: str) -> Iterator[sa.Connection]:
    """Somebody who may do anything in the database, and has taken its triggers away."""
    with writing(url) as connection:
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text("DROP TRIGGER audit_unchanged"))
            connection.execute(sa.text("DROP TRIGGER audit_kept"))
        else:
            connection.execute(sa.text("ALTER TABLE audit DISABLE TRIGGER USER"))
        yield connection


def test_the_hash_is_as_documented() -> None:
    # Made by hand, as somebody else would verify it.
    content = (
        '[7,"2020-02-29T12:00:00.000000+00:00","ada","10.0.0.1","dropped","role \\"\\u00fc\\"","parked","","too late"]'
    )
    assert (
        Act(NOW, "ada", "10.0.0.1", "dropped", 'role "ü"', "parked", "", "too late").hashed(7, NO_HASH)
        == hashlib.sha256(NO_HASH + content.encode("ascii")).digest()
    )


def test_acts_get_their_places_in_the_chain_in_their_order(shared_url: str) -> None:
    before = fill(shared_url, 0).number
    head = fill(shared_url, 3)

    rows = rows_of(shared_url)
    assert [row.number for row in rows] == list(range(1, before + 4))
    assert [row.act for row in rows[before:]] == [act(1), act(2), act(3)]
    assert rows[-1].hash == head.hash
    assert faults(shared_url) == ()


def test_a_row_waits_for_the_chain_until_somebody_hangs_it(shared_url: str) -> None:
    fill(shared_url, 0)
    with writing(shared_url) as connection:
        note_acts(connection, [act(1)])

    with reading(shared_url) as connection:
        assert list_acts(connection, AuditFilters(), 1)[0].number is None
        assert verify(connection).faults == ()


def test_triggers_refuse_changes(shared_url: str) -> None:
    fill(shared_url)
    row = model.audit.c
    changes: list[sa.Executable] = [
        sa.update(model.audit).where(row.number == 1).values(who="eve"),
        sa.update(model.audit).where(row.number == 1).values(number=None, hash=None),
        sa.delete(model.audit).where(row.number == 1),
    ]
    if shared_url.startswith("postgresql"):
        changes.append(sa.text("TRUNCATE audit"))
    for change in changes:
        with pytest.raises(JournalError, match="never changed or removed"), writing(shared_url) as connection:
            connection.execute(change)
    with writing(shared_url) as connection:
        note_acts(connection, [act(9)])
    for change in (sa.update(model.audit).values(reason="other"), sa.delete(model.audit)):
        with pytest.raises(JournalError), writing(shared_url) as connection:
            connection.execute(change.where(row.number.is_(None)))
    assert faults(shared_url) == ()


@pytest.mark.parametrize("column", ["at", "who", "origin", "action", "object", "before", "after", "reason"])
def test_a_changed_value_is_found(shared_url: str, column: str) -> None:
    last = fill(shared_url).number
    value = datetime(2001, 1, 1, tzinfo=UTC) if column == "at" else "other"
    with tampering(shared_url) as connection:
        connection.execute(sa.update(model.audit).where(model.audit.c.number == last - 2).values({column: value}))

    (fault,) = faults(shared_url)
    assert fault.startswith(f"row {last - 2} was changed")


def test_a_row_that_was_hashed_anew_is_found_by_the_next_one(shared_url: str) -> None:
    last = fill(shared_url).number
    with tampering(shared_url) as connection:
        before = connection.execute(sa.select(model.audit.c.hash).where(model.audit.c.number == last - 3)).scalar_one()
        other = act(3, who="eve")
        connection.execute(
            sa.update(model.audit)
            .where(model.audit.c.number == last - 2)
            .values(who="eve", hash=other.hashed(last - 2, bytes(before)))
        )

    (fault,) = faults(shared_url)
    assert fault.startswith(f"row {last - 1} was changed")


def test_missing_rows_are_found(shared_url: str) -> None:
    last = fill(shared_url).number
    with tampering(shared_url) as connection:
        connection.execute(sa.delete(model.audit).where(model.audit.c.number.in_([last - 2, last - 1])))
    assert faults(shared_url) == (f"rows {last - 2} to {last - 1} are missing",)


def test_rows_in_another_order_are_found(shared_url: str) -> None:
    last = fill(shared_url).number
    with tampering(shared_url) as connection:
        for now, then in ((last, -1), (last - 1, last), (-1, last - 1)):
            connection.execute(sa.update(model.audit).where(model.audit.c.number == now).values(number=then))
    first, second, end = faults(shared_url)
    assert first.startswith(f"row {last - 1} was changed")
    assert second.startswith(f"row {last} was changed")
    assert "the head names" in end


def test_a_removed_end_is_found_by_the_head_and_by_a_noted_one(shared_url: str) -> None:
    noted = fill(shared_url)
    with tampering(shared_url) as connection:
        connection.execute(sa.delete(model.audit).where(model.audit.c.number == noted.number))
    (fault,) = faults(shared_url)
    assert "rows at the end are missing" in fault

    # Somebody who knows better changes the head, too: only what was noted elsewhere tells.
    with writing(shared_url) as connection:
        last = list(read_chain(connection, 0))[-1]
        connection.execute(sa.update(model.audit_head).values(number=last.number, hash=last.hash))
    assert faults(shared_url) == ()
    (fault,) = faults(shared_url, noted)
    assert fault.startswith(f"row {noted.number} with the noted hash is missing")


def test_a_chain_that_was_written_anew_is_found_by_a_noted_head(shared_url: str) -> None:
    noted = fill(shared_url)
    with tampering(shared_url) as connection:
        rows = list(read_chain(connection, 0))
        connection.execute(sa.update(model.audit).values(number=None, hash=None, who="eve"))
        connection.execute(sa.update(model.audit_head).values(number=0, hash=NO_HASH))
        assert hang_all(connection).number == len(rows)

    assert faults(shared_url) == ()
    assert len(faults(shared_url, noted)) == 1


def test_a_noted_head_stays_in_the_chain(shared_url: str) -> None:
    noted = fill(shared_url)
    fill(shared_url)
    assert faults(shared_url, noted) == ()


def test_two_writers_do_not_fork_the_chain(shared_url: str) -> None:
    began = fill(shared_url, 0).number

    def write(name: int) -> None:
        engine = create_engine(shared_url)
        for _ in range(20):
            with engine.begin() as connection:
                note_acts(connection, [act(1, who=str(name))])
            with engine.begin() as connection:
                hang_new(connection, wait=name % 2 == 0)
        engine.dispose()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, range(3)))

    assert fill(shared_url, 0).number == began + 60
    assert [row.number for row in rows_of(shared_url)] == list(range(1, began + 61))
    assert faults(shared_url) == ()


def test_a_chain_may_grow_while_it_is_verified(shared_url: str) -> None:
    fill(shared_url, 3000)
    is_over = threading.Event()

    def grow() -> None:
        engine = create_engine(shared_url)
        while not is_over.is_set():
            with engine.begin() as connection:
                note_acts(connection, [act(1)])
                hang_new(connection, wait=True)
        engine.dispose()

    with ThreadPoolExecutor(1) as threads:
        growing = threads.submit(grow)
        try:
            assert [faults(shared_url) for _ in range(5)] == [()] * 5
        finally:
            is_over.set()
        growing.result()


def test_who_does_not_wait_leaves_the_chain_to_the_other(store_url: str) -> None:
    fill(store_url, 0)
    with writing(store_url) as first:
        note_acts(first, [act(1)])
        assert lock_head(first) is not None
        with writing(store_url) as second:
            assert hang_new(second, wait=False) == 0
            # To note is never to wait.
            note_acts(second, [act(2)])


def test_a_cut_leaves_a_chain_that_can_be_verified(shared_url: str) -> None:
    noted = fill(shared_url)
    with writing(shared_url) as connection:
        cut = cut_older(connection, NOW + timedelta(days=4), "a year is over", NOW + timedelta(days=9))

    assert cut is not None
    kept = rows_of(shared_url)
    assert [row.act.object for row in kept[:2]] == ["envelope 4", "envelope 5"]
    assert (kept[-1].act.action, kept[-1].act.after, kept[-1].act.reason) == (
        "audit_cut",
        str(cut.last),
        "a year is over",
    )
    assert faults(shared_url, noted) == ()
    # Again, so that the row of the first cut goes, too.
    with writing(shared_url) as connection:
        assert cut_older(connection, NOW + timedelta(days=30), "", NOW + timedelta(days=40)) is not None
    assert [row.act.action for row in rows_of(shared_url)] == ["audit_cut"]
    assert faults(shared_url) == ()


def test_rows_that_go_without_the_command_are_found(shared_url: str) -> None:
    fill(shared_url)
    with writing(shared_url) as connection:
        third = list(read_chain(connection, 0))[2]
        connection.execute(sa.update(model.audit_head).values(cut_number=3, cut_hash=third.hash))
        connection.execute(sa.delete(model.audit).where(model.audit.c.number <= 3))
    assert faults(shared_url) == ("rows up to 3 are missing, and no xbus audit cut removed them",)


def test_no_cut_hides_a_change(shared_url: str) -> None:
    fill(shared_url)
    with tampering(shared_url) as connection:
        connection.execute(sa.update(model.audit).where(model.audit.c.number == 2).values(who="eve"))
    with pytest.raises(Refused, match="row 2 was changed"), writing(shared_url) as connection:
        cut_older(connection, NOW + timedelta(days=9), "", NOW)


def test_a_change_of_the_configuration_is_kept_with_both_values(shared_url: str) -> None:
    bus = small_bus()
    services = {**bus.services, "store": replace(bus.services["store"], attempts=7)}
    with writing(shared_url) as connection:
        apply(connection, make_plan(read_stored(connection), replace(bus, services=services)), NOW)

    assert newest(shared_url)[0] == Act(
        NOW,
        person(),
        newest(shared_url)[0].origin,
        "changed",
        'service "store"',
        '{"attempts": null}',
        '{"attempts": 7}',
    )
    added = {found.object for found in newest(shared_url, action="added")}
    assert {'emitter "north"', 'role "store_1"', 'event_type "flights"'} <= added


def test_a_new_entry_is_kept_with_what_is_set(shared_url: str) -> None:
    retry = RetrySettings(attempts=7)
    shop = SubscriptionSpec(
        "shop",
        frozenset({"notes"}),
        "https://shop.example",
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        retry=retry,
    )
    with writing(shared_url) as connection:
        apply(connection, make_plan(read_stored(connection), replace(small_bus(), subscriptions={"shop": shop})), NOW)
    (added,) = (found for found in newest(shared_url, action="added") if found.object == 'subscription "shop"')
    told = json.loads(added.after)
    assert told["retry"] == {"attempts": 7}
    assert not {"max_lag", "secret"} & told.keys()


def test_passwords_and_sessions_are_kept_without_any_secret(shared_url: str) -> None:
    with writing(shared_url) as connection:
        set_password(connection, "emitter", "north", "$argon2id$secret", NOW)
        end_login(connection, "role", "store_1", NOW)

    ended, password = newest(shared_url)[:2]
    assert (password.action, password.object) == ("password_set", 'emitter "north"')
    assert (ended.action, ended.object) == ("sessions_ended", 'role "store_1"')
    assert not any("argon2" in str(found) for found in newest(shared_url))


def test_what_is_not_done_is_not_kept(shared_url: str) -> None:
    before = newest(shared_url)
    with pytest.raises(ConfigurationError), writing(shared_url) as connection:
        set_password(connection, "emitter", "nobody", "hash", NOW)
    assert newest(shared_url) == before


def test_pauses_are_kept_also_their_end_by_time(shared_url: str) -> None:
    decision = RepairDecision("ada", "moving house", NOW)
    with writing(shared_url) as connection:
        pause(connection, PauseKind.ROLE, "store_1", decision, NOW + timedelta(hours=1))
        pause(connection, PauseKind.TYPE, "notes", decision, None)
        resume(connection, PauseKind.TYPE, "notes", decision)
        version = connection.execute(sa.select(model.configuration.c.version)).scalar_one()
        pauses.end(connection, [EndPauses(NOW + timedelta(hours=2))])
        assert connection.execute(sa.select(model.configuration.c.version)).scalar_one() == version + 1

    told = [(found.who, found.action, found.object, found.after, found.reason) for found in newest(shared_url)[:4]]
    assert told == [
        ("broker", "resumed", 'role "store_1"', "", "its time was over"),
        (person(), "resumed", 'event_type "notes"', "", "moving house"),
        (person(), "paused", 'event_type "notes"', "", "moving house"),
        (person(), "paused", 'role "store_1"', "until 2020-02-29 13:00:00Z", "moving house"),
    ]


@pytest.mark.parametrize(
    "edit",
    [
        lambda: sa.update(model.role).where(model.role.c.login == "store_1").values(instances=3),
        lambda: sa.delete(model.edge),
    ],
)
def test_an_edit_by_sql_is_kept(shared_url: str, edit: Callable[[], sa.Executable]) -> None:
    with writing(shared_url) as connection:
        version = connection.execute(sa.select(model.configuration.c.version)).scalar_one()
        connection.execute(edit())

    found = newest(shared_url, action="edited_by_sql")
    assert (found[-1].object, found[-1].before) == ("configuration", f"version {version}")
    assert abs(found[0].at - datetime.now(UTC)) < timedelta(hours=1)
    if shared_url.startswith("postgresql"):
        assert found[0].who != ""
    fill(shared_url, 0)
    assert faults(shared_url) == ()


def test_the_list_is_filtered(shared_url: str) -> None:
    fill(shared_url, 2)
    with writing(shared_url) as connection:
        note_acts(connection, [act(7, who="eve", action="resumed")])
    assert [found.object for found in newest(shared_url, who="ada")] == ["envelope 2", "envelope 1"]
    assert [found.object for found in newest(shared_url, action="resumed")] == ["envelope 7"]
    assert [found.object for found in newest(shared_url, object="elope 2")] == ["envelope 2"]
    with reading(shared_url) as connection:
        since = list_acts(connection, AuditFilters(since=NOW + timedelta(days=2)), 9)
        below = list_acts(connection, AuditFilters(before_number=read_head(connection).number), 1)
    assert [row.act.object for row in since] == ["envelope 7", "envelope 2"]
    assert [row.act.object for row in below] == ["envelope 1"]


def test_letters_that_a_terminal_obeys_are_written_as_escapes(shared_url: str) -> None:
    with writing(shared_url) as connection:
        note_acts(connection, [act(1, who="a\0\x1b[31m\n" + "b" * 300)])
        hang_all(connection)
    assert newest(shared_url)[0].who == ("a\\x00\\x1b[31m\\n" + "b" * 300)[:255]
    assert faults(shared_url) == ()
