"""What the back keeps: cursors, deliveries that go their own way, failures; and sessions and registrations."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.configuration.logins import set_password
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors, read_due_deliveries, read_next_due
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import read_at
from xbus.broker.journal.log.sessions import (
    StoredIntroduction,
    StoredRegistration,
    StoredSession,
    read_consumers,
    read_credentials,
    read_registrations,
    read_sessions,
)
from xbus.broker.journal.writes import (
    DeliveryMove,
    DeliveryRow,
    EndSession,
    Failure,
    Introduce,
    IsolatedItem,
    ProgressUpdate,
    Register,
    RenewSessions,
    SealReceipt,
    StartSession,
    StorePassword,
    Unregister,
)
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import JournalError, JournalUnavailable
from xbus.states import DeliveryState

SOON = NOW + timedelta(hours=1)
HASH = b"h" * 32
OTHER_HASH = b"i" * 32
PASSWORD_HASH = "argon2 of a password"
METADATA = {"name": "store", "version": 1.5, "host": "here", "place": {"rooms": [1, "zwölf"], "roof": None}}
FEATURES = {"clearing": [True, "postgresql://here/store"], "immediate_reply": [True, ["question", "wish"]]}

# -- cursors ---------------------------------------------------------------------------------------------------------


async def test_a_cursor_comes_back_as_it_was_written(journal: Journal, scribe: Scribe) -> None:
    cursor = (await journal.read(read_cursors))[scribe.role_id()]
    cursor.handed_to = 5000
    for position in (1, 2, 5, 1000, 4097):
        cursor.settle(position)
    await journal.write(ProgressUpdate(NOW, [cursor]))
    assert (await journal.read(read_cursors))[scribe.role_id()] == cursor


async def test_consumer_roles_have_cursors_and_workers_none(journal: Journal, scribe: Scribe) -> None:
    assert set(await journal.read(read_cursors)) == {scribe.role_id("store_1"), scribe.role_id("store_2")}


async def test_a_role_without_a_cursor_moves_none(journal: Journal, scribe: Scribe) -> None:
    with pytest.raises(JournalError):
        await journal.write(ProgressUpdate(NOW, [Cursor(scribe.role_id("names_1"), 1, None, 3)]))


# -- deliveries ------------------------------------------------------------------------------------------------------


def set_aside(scribe: Scribe, receipt: SealReceipt, state: DeliveryState, role: str = "store_1") -> DeliveryRow:
    service = "names" if state is DeliveryState.WAITING else None
    role_id = scribe.role_id(role)
    return DeliveryRow(role_id, receipt.envelope_id, receipt.position, state, 1, "timed_out", "no answer", service)


async def due(
    journal: Journal,
    scribe: Scribe,
    *services: str,
    role: str = "store_1",
    at: datetime | None = None,
    arrived_at: datetime | None = None,
) -> list[DeliveryRow]:
    return await journal.read(read_due_deliveries, scribe.role_id(role), services, 100, at or NOW, arrived_at)


async def test_a_delivery_comes_back_as_it_was_written(journal: Journal, scribe: Scribe) -> None:
    delivery = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, delivery)]))
    assert await due(journal, scribe) == [delivery]


async def test_due_are_retries_and_what_waits_for_a_worker_that_is_there(journal: Journal, scribe: Scribe) -> None:
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    waiting = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.WAITING)
    parked = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.PARKED)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, each) for each in (parked, waiting, retry)]))
    assert await due(journal, scribe) == [retry]
    assert await due(journal, scribe, "names") == [retry, waiting]


async def test_what_is_to_be_tried_again_is_due_from_its_moment_on(journal: Journal, scribe: Scribe) -> None:
    later = [
        replace(
            set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY), due_at=NOW + timedelta(seconds=seconds)
        )
        for seconds in (20, 10)
    ]
    role_id = scribe.role_id()
    assert await journal.read(read_next_due, role_id, NOW) is None
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, each) for each in later]))
    assert await due(journal, scribe) == []
    assert await journal.read(read_next_due, role_id, NOW) == later[1].due_at
    assert await due(journal, scribe, at=NOW + timedelta(seconds=10)) == [later[1]]
    assert await journal.read(read_next_due, role_id, NOW + timedelta(seconds=10)) == later[0].due_at
    assert await due(journal, scribe, at=NOW + timedelta(seconds=20)) == later
    assert await journal.read(read_next_due, role_id, NOW + timedelta(seconds=20)) is None


async def test_what_failed_before_a_recipient_came_waits_no_longer(journal: Journal, scribe: Scribe) -> None:
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    retry = replace(retry, due_at=NOW + timedelta(seconds=300))
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, retry)]))
    assert await due(journal, scribe, arrived_at=NOW) == []
    assert await due(journal, scribe, arrived_at=NOW + timedelta(seconds=1)) == [retry]


async def test_each_role_has_its_own_deliveries(journal: Journal, scribe: Scribe) -> None:
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY, "store_2")
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, retry)]))
    assert await due(journal, scribe, role="store_1") == []
    assert await due(journal, scribe, role="store_2") == [retry]


async def test_a_settled_delivery_goes(journal: Journal, scribe: Scribe) -> None:
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    settled = replace(retry, state=DeliveryState.SETTLED)
    moves = [DeliveryMove(None, retry), DeliveryMove(DeliveryState.RETRY, settled)]
    await journal.write(ProgressUpdate(NOW, deliveries=moves))
    assert await due(journal, scribe) == []


async def test_a_delivery_moves_only_from_the_state_that_it_is_in(journal: Journal, scribe: Scribe) -> None:
    """Compare and set: who acts on what is no longer so, changes nothing."""
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    waiting = replace(retry, state=DeliveryState.WAITING, service="names")
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, retry)]))
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(DeliveryState.RETRY, waiting)]))
    late = DeliveryMove(DeliveryState.RETRY, replace(retry, state=DeliveryState.SETTLED))
    with pytest.raises(JournalError, match="no longer retry"):
        await journal.write(ProgressUpdate(NOW, deliveries=[late]))
    assert await due(journal, scribe, "names") == [waiting]


async def test_what_waits_for_one_worker_may_come_to_wait_for_another(journal: Journal, scribe: Scribe) -> None:
    waiting = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.WAITING)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, waiting)]))
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(DeliveryState.WAITING, waiting)]))
    assert await due(journal, scribe, "names") == [waiting]


async def test_a_cursor_moves_only_together_with_the_row_that_it_passes(journal: Journal, scribe: Scribe) -> None:
    retry = set_aside(scribe, await scribe.put([b"x"]), DeliveryState.RETRY)
    cursor = (await journal.read(read_cursors))[scribe.role_id()]
    cursor.settle(1)
    impossible = DeliveryMove(DeliveryState.RETRY, replace(retry, state=DeliveryState.PARKED))
    with pytest.raises(JournalError):
        await journal.write(ProgressUpdate(NOW, [cursor], [impossible]))
    assert (await journal.read(read_cursors))[scribe.role_id()].position == 0


async def test_a_parked_delivery_is_remembered(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    parked = set_aside(scribe, receipt, DeliveryState.PARKED)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, parked)]))

    def read_history(connection: sa.Connection) -> list[tuple[str, str, str]]:
        history = model.history.c
        wanted = sa.select(history.subject_id, history.move, history.reason).where(history.subject == "delivery")
        return [(subject_id, move, reason) for subject_id, move, reason in connection.execute(wanted)]

    subject_id = f"{scribe.role_id()} {receipt.envelope_id}"
    assert await journal.read(read_history) == [(subject_id, "parked", "no answer")]


async def test_items_are_isolated_together_with_the_move_of_their_delivery(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"one", b"two"])
    (envelope,) = await journal.read(read_at, [receipt.position])
    event_id = envelope.events[0].event_id
    new = set_aside(scribe, receipt, DeliveryState.RETRY)
    items = [IsolatedItem(event_id, index, "refused", "no price") for index in (0, 1)]
    with pytest.raises(JournalError):
        await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(DeliveryState.PARKED, new, items)]))
    assert await journal.read(read_overlays, new.role_id, receipt.envelope_id) == {}

    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, new, items)]))

    overlays = await journal.read(read_overlays, new.role_id, receipt.envelope_id)
    assert overlays[event_id].left_out == {0, 1}

    def read(connection: sa.Connection) -> list[tuple[int, str, str, str]]:
        item = model.parked_item.c
        found = connection.execute(sa.select(item.item_index, item.state, item.code, item.cause))
        return [(index, state, code, cause) for index, state, code, cause in found]

    assert sorted(await journal.read(read)) == [(index, "parked", "refused", "no price") for index in (0, 1)]


async def test_failures_are_kept(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    named = Failure(receipt.envelope_id, None, scribe.role_id(), "send_item", "refused", "too old", [0, 3], "shop")
    nobodys = Failure(receipt.envelope_id, None, None, "end_envelope", "timed_out", "no answer")
    await journal.write(ProgressUpdate(NOW, failures=[named, nobodys]))

    def read_failures(connection: sa.Connection) -> list[tuple[object, ...]]:
        failure = model.failure.c
        told = (failure.role_id, failure.verb, failure.code, failure.message, failure.indices, failure.node)
        return [tuple(row) for row in connection.execute(sa.select(*told).order_by(failure.id))]

    assert await journal.read(read_failures) == [
        (scribe.role_id(), "send_item", "refused", "too old", [0, 3], "shop"),
        (None, "end_envelope", "timed_out", "no answer", None, None),
    ]


async def test_a_delivery_closes_the_failures_before_it(journal: Journal, scribe: Scribe) -> None:
    """Those of its role at once, those of workers with the last one, and none that names an item parked alone."""
    receipt, other = await scribe.put([b"one", b"two"]), await scribe.put([b"x"])
    (envelope,) = await journal.read(read_at, [receipt.position])
    event_id = envelope.events[0].event_id

    def failed(role: str, message: str, indices: list[int] | None = None) -> Failure:
        return Failure(
            receipt.envelope_id, event_id, scribe.role_id(role), "send_item", "refused", message, indices, "shop"
        )

    one, two = (set_aside(scribe, receipt, DeliveryState.RETRY, role) for role in ("store_1", "store_2"))
    parked = IsolatedItem(event_id, 1, "refused", "no price")
    failures = [
        *(failed("store_1", "first"), failed("store_2", "second"), failed("names_1", "of the worker")),
        failed("store_1", "of a parked item", [1]),
        Failure(other.envelope_id, None, scribe.role_id("store_1"), "end_envelope", "refused", "of another"),
    ]
    moves = [DeliveryMove(None, one, [parked]), DeliveryMove(None, two)]
    await journal.write(ProgressUpdate(NOW, deliveries=moves, failures=failures))

    def unprocessed(connection: sa.Connection) -> set[str]:
        failure = model.failure.c
        return set(connection.execute(sa.select(failure.message).where(failure.tracking == "unprocessed")).scalars())

    async def deliver(row: DeliveryRow) -> set[str]:
        settled = DeliveryMove(DeliveryState.RETRY, replace(row, state=DeliveryState.SETTLED))
        await journal.write(ProgressUpdate(NOW, deliveries=[settled]))
        return await journal.read(unprocessed)

    assert await deliver(one) == {"second", "of the worker", "of a parked item", "of another"}
    assert await deliver(two) == {"of a parked item", "of another"}

    def read_history(connection: sa.Connection) -> list[tuple[object, ...]]:
        history = model.history.c
        noted = sa.select(history.move, history.reason, history.who).where(history.subject == "failure")
        return [tuple(row) for row in connection.execute(noted)]

    assert set(await journal.read(read_history)) == {
        ("corrected", "closed by the broker: the envelope was delivered", None)
    }


@pytest.mark.parametrize("is_in_turn", [True, False], ids=["in its turn", "by a row"])
async def test_a_repeat_closes_the_failures_of_what_it_repeats(
    journal: Journal, scribe: Scribe, is_in_turn: bool
) -> None:
    """It closes none whose own envelope is still owed."""
    first, owed = await scribe.put([b"one"]), await scribe.put([b"two"])
    one, worker = scribe.role_id("store_1"), scribe.role_id("names_1")
    failures = [
        Failure(receipt.envelope_id, None, role_id, "send_item", "refused", message, None, "shop")
        for receipt, role_id, message in [
            (first, one, "first"),
            (first, worker, "of the worker"),
            (first, scribe.role_id("store_2"), "of another role"),
            (owed, one, "owed"),
        ]
    ]
    parked = replace(set_aside(scribe, owed, DeliveryState.RETRY, "store_1"), state=DeliveryState.PARKED)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, parked)], failures=failures))
    # Somebody repeats the repeat.
    once = await scribe.again(first.envelope_id)
    await journal.write(once)
    again = await scribe.again(once.envelope_id)
    of_owed = await scribe.again(owed.envelope_id)
    receipts = [await journal.write(again), await journal.write(of_owed)]
    if is_in_turn:
        delivered = [(one, receipt.envelope_id) for receipt in receipts]
        await journal.write(ProgressUpdate(NOW, repeated=delivered))
    else:
        for receipt in receipts:
            row = set_aside(scribe, receipt, DeliveryState.RETRY, "store_1")
            settled = DeliveryMove(DeliveryState.RETRY, replace(row, state=DeliveryState.SETTLED))
            await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row)]))
            await journal.write(ProgressUpdate(NOW, deliveries=[settled]))
    open_ones = sa.select(model.failure.c.message).where(model.failure.c.tracking == "unprocessed")
    assert set(await journal.read(lambda connection: connection.execute(open_ones).scalars())) == {
        *("of another role", "owed")
    }


async def test_a_text_that_a_database_can_not_keep_harms_no_other(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    strange = Failure(receipt.envelope_id, None, None, "send_item", "c" * 1000, "zero \0 character")
    writes = [
        journal.write(ProgressUpdate(NOW, failures=[strange])),
        journal.write(Register(7777777, HASH, "tcp://a:1", "here", NOW, {}, {})),
    ]
    assert (await scribe.put([b"x"])).position == 2
    for write in writes:
        try:
            await write
        except JournalError as error:
            # SQLite keeps any text, PostgreSQL does not; neither takes a recipient of nobody.
            assert not isinstance(error, JournalUnavailable)


# -- sessions --------------------------------------------------------------------------------------------------------


async def test_sessions_come_back_with_their_owners(journal: Journal, scribe: Scribe) -> None:
    emitter_id, role_id = scribe.emitter_id(), scribe.role_id()
    await set_passwords(journal, PASSWORD_HASH)
    assert await journal.write(StartSession(HASH, emitter_id, None, SOON, PASSWORD_HASH))
    assert await journal.write(StartSession(OTHER_HASH, None, role_id, SOON, PASSWORD_HASH))
    assert await journal.read(read_sessions, of_roles=False) == [StoredSession(HASH, emitter_id, SOON)]
    assert await journal.read(read_sessions, of_roles=True) == [StoredSession(OTHER_HASH, role_id, SOON)]


async def test_no_session_begins_by_a_password_that_was_changed_meanwhile(journal: Journal, scribe: Scribe) -> None:
    await set_passwords(journal, "another")
    starts = [
        StartSession(HASH, scribe.emitter_id(), None, SOON, PASSWORD_HASH),
        StartSession(OTHER_HASH, None, scribe.role_id(), SOON, PASSWORD_HASH),
        StartSession(b"t" * 32, scribe.emitter_id(), None, SOON, "another"),
    ]
    assert await asyncio.gather(*map(journal.write, starts)) == [False, False, True]
    assert [session.token_hash for session in await journal.read(read_sessions, of_roles=False)] == [b"t" * 32]


async def set_passwords(journal: Journal, password_hash: str) -> None:
    def change(connection: sa.Connection) -> None:
        for owners in (model.emitter, model.role):
            connection.execute(sa.update(owners).values(password_hash=password_hash))

    await journal.run(change)


async def test_sessions_are_renewed_and_ended(journal: Journal, scribe: Scribe) -> None:
    later = SOON + timedelta(hours=1)
    await set_passwords(journal, PASSWORD_HASH)
    await journal.write(StartSession(HASH, scribe.emitter_id(), None, SOON, PASSWORD_HASH))
    await journal.write(RenewSessions([(HASH, later), (OTHER_HASH, later)]))
    assert [session.expires_at for session in await journal.read(read_sessions, of_roles=False)] == [later]
    await journal.write(EndSession(HASH))
    assert await journal.read(read_sessions, of_roles=False) == []


@pytest.fixture
def passwords_set(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        set_password(connection, "emitter", "north", "set", NOW)
        set_password(connection, "role", "store_1", "set", NOW)


@pytest.mark.usefixtures("passwords_set")
async def test_a_better_hash_replaces_the_one_that_was_verified(journal: Journal, scribe: Scribe) -> None:
    await journal.write(StorePassword(scribe.emitter_id(), None, "set", "better"))
    assert await journal.read(read_credentials, "emitter", "north") == (scribe.emitter_id(), "better")
    assert await journal.read(read_credentials, "role", "store_1") == (scribe.role_id(), "set")
    await journal.write(StorePassword(None, scribe.role_id(), "set", "another"))
    assert await journal.read(read_credentials, "role", "store_1") == (scribe.role_id(), "another")


@pytest.mark.usefixtures("passwords_set")
async def test_a_better_hash_does_not_undo_a_password_that_was_set_meanwhile(journal: Journal, scribe: Scribe) -> None:
    await journal.write(StorePassword(scribe.emitter_id(), None, "verified before", "better"))
    await journal.write(StorePassword(None, scribe.role_id(), "verified before", "better"))
    assert await journal.read(read_credentials, "emitter", "north") == (scribe.emitter_id(), "set")
    assert await journal.read(read_credentials, "role", "store_1") == (scribe.role_id(), "set")


async def test_where_no_password_is_set_none_is_made_better(journal: Journal, scribe: Scribe) -> None:
    await journal.write(StorePassword(scribe.emitter_id(), None, "verified before", "better"))
    assert await journal.read(read_credentials, "emitter", "north") is None


# -- registrations ---------------------------------------------------------------------------------------------------


async def test_the_newest_registration_of_a_role_stays(journal: Journal, scribe: Scribe) -> None:
    role_id = scribe.role_id()
    await journal.write(Register(role_id, HASH, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    await journal.write(Register(role_id, OTHER_HASH, "tcp://here:2", "here", NOW, METADATA, FEATURES))
    assert await journal.read(read_registrations) == [StoredRegistration(role_id, OTHER_HASH, "tcp://here:2", "here")]
    await journal.write(Unregister(role_id, OTHER_HASH, "tcp://here:2"))
    assert await journal.read(read_registrations) == []


async def test_registrations_of_a_role_are_kept_side_by_side(journal: Journal, scribe: Scribe) -> None:
    role_id, later = scribe.role_id(), NOW + timedelta(seconds=1)
    await journal.write(Register(role_id, HASH, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    beside = [HASH]
    await journal.write(Register(role_id, OTHER_HASH, "tcp://here:2", "here", later, METADATA, FEATURES, beside))
    first = StoredRegistration(role_id, HASH, "tcp://here:1", "here")
    assert await journal.read(read_registrations) == [
        first,
        StoredRegistration(role_id, OTHER_HASH, "tcp://here:2", "here"),
    ]
    assert await journal.read(read_consumers) == [StoredIntroduction(METADATA, FEATURES)]
    again = Register(role_id, OTHER_HASH, "tcp://here:3", "here", later, METADATA, FEATURES, beside)
    await journal.write(again)
    assert [registration.uri for registration in await journal.read(read_registrations)] == [
        "tcp://here:1",
        "tcp://here:3",
    ]
    await journal.write(Unregister(role_id, OTHER_HASH, "tcp://here:3"))
    assert await journal.read(read_registrations) == [first]


@pytest.mark.parametrize("together", [True, False])
async def test_a_registration_survives_the_end_of_the_one_it_replaces(
    journal: Journal, scribe: Scribe, together: bool
) -> None:
    role_id = scribe.role_id()
    await journal.write(Register(role_id, HASH, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    replaced = journal.write(Register(role_id, OTHER_HASH, "tcp://here:2", "here", NOW, METADATA, FEATURES))
    if not together:
        await replaced
    await journal.write(Unregister(role_id, HASH, "tcp://here:1"))
    assert [registration.uri for registration in await journal.read(read_registrations)] == ["tcp://here:2"]


async def test_what_a_registered_consumer_says_of_itself_is_kept(journal: Journal, scribe: Scribe) -> None:
    store, names = scribe.role_id("store_1"), scribe.role_id("names_1")
    await journal.write(
        Register(names, OTHER_HASH, "tcp://here:2", "here", NOW, {**METADATA, "name": "worker"}, FEATURES)
    )
    assert await journal.read(read_consumers) == []
    await journal.write(Register(store, HASH, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    assert await journal.read(read_consumers) == [StoredIntroduction(METADATA, FEATURES)]
    await journal.write(Unregister(store, HASH, "tcp://here:1"))
    assert await journal.read(read_consumers) == []


async def test_a_later_introduction_is_that_of_the_same_recipient(journal: Journal, scribe: Scribe) -> None:
    role_id = scribe.role_id()
    await journal.write(Register(role_id, HASH, "tcp://here:1", "here", NOW, METADATA, FEATURES))
    await journal.write(Introduce(role_id, OTHER_HASH, "tcp://here:1", {"name": "another"}, FEATURES))
    await journal.write(Introduce(role_id, HASH, "tcp://here:2", None, None))
    assert await journal.read(read_consumers) == [StoredIntroduction(METADATA, FEATURES)]
    renamed = {**METADATA, "name": "renamed"}
    await journal.write(Introduce(role_id, HASH, "tcp://here:1", renamed, FEATURES))
    assert await journal.read(read_consumers) == [StoredIntroduction(renamed, FEATURES)]
    await journal.write(Introduce(role_id, HASH, "tcp://here:1", None, None))
    assert await journal.read(read_consumers) == []
    assert [registration.uri for registration in await journal.read(read_registrations)] == ["tcp://here:1"]
