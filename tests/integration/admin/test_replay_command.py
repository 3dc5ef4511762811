"""``xbus replay``: what it says and refuses.

Databases differ in the statements only, and those are tested on each of them in ``tests/contract/test_replay.py``.
"""

import time
import uuid

import pytest
from sqlalchemy import func, insert, select, update

from tests.integration.admin.conftest import NOON, Xbus
from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus
from xbus.broker.journal.database.connection import reading, writing
from xbus.model import archived_envelope, envelope, event_type, history

TO_STORE = ("replay", "--type", "clients", "--role", "store_1")
THAT_DAY = ("--from", "2030-05-17", "--to", "2030-05-18T00:00:00Z")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    """Three envelopes, sealed at one noon: the first also with an event of notes."""
    return make_parked_bus(database_url)


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends."""
    monkeypatch.setenv("LOGNAME", "ada")


def told(xbus: Xbus, *arguments: str) -> str:
    result = xbus(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def count(url: str) -> tuple[int, int]:
    """How many envelopes and lines of history there are."""
    with reading(url) as connection:
        counts = [
            connection.execute(select(func.count()).select_from(each)).scalar_one() for each in (envelope, history)
        ]
    return counts[0], counts[1]


def test_it_says_what_it_would_send(xbus: Xbus, bus: ParkedBus) -> None:
    before = count(bus.url)
    assert told(xbus, *TO_STORE, *THAT_DAY, "--dry-run").splitlines() == [
        'To store_1 (service store), events of type "clients" at positions 1 to 3:',
        "  3 envelopes, 3 events, 13 items, sealed from 2030-05-17 12:00:00Z to 2030-05-17 12:00:00Z",
    ]
    assert count(bus.url) == before
    result = xbus(*TO_STORE, *THAT_DAY, stdin="n\n")
    assert (result.exit_code, count(bus.url)) == (1, before)


def test_it_sends_and_keeps_who_did(xbus: Xbus, bus: ParkedBus) -> None:
    result = xbus(*TO_STORE, *THAT_DAY, "--reason", "lost", stdin="y\n")
    assert "Sent 3 envelopes with 13 items to store_1." in result.stdout
    with reading(bus.url) as connection:
        kept = connection.execute(select(history.c.subject_id, history.c.reason).where(history.c.move == "replayed"))
        assert [tuple(row) for row in kept] == [("store_1", 'positions 1 to 3 of type "clients", by ada: lost')]
    assert told(xbus, *TO_STORE, "--from", "2", "--to", "3").splitlines()[1:] == [
        "  left out: 2 envelopes were replayed to it before; --again with a new name sends them once more",
        "Nothing is left to send.",
    ]
    assert "Sent 1 envelope with 1 item to" in told(xbus, *TO_STORE, "--from", "3", "--again", "b", "--yes")


def test_it_sends_at_a_rate(xbus: Xbus, bus: ParkedBus) -> None:
    began = time.monotonic()
    assert "Sent 3 envelopes with 13 items to" in told(xbus, *TO_STORE, *THAT_DAY, "--rate", "2", "--yes")
    # The third may begin a second behind the first two.
    assert time.monotonic() - began >= 1
    assert xbus(*TO_STORE, *THAT_DAY, "--rate", "0").exit_code == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--from", "2030-05-18", "--to", "2030-05-17"), "bad_range"),
        (("--from", "2030-05-18", "--to", "2030-05-18"), "bad_range"),
        (("--from", "3", "--to", "2"), "bad_range"),
        (("--from", "2030-05-18"), "nothing_to_replay"),
        (("--from", "4"), "nothing_to_replay"),
        (("--from", "oldest", "--to", "2030-05-17"), "nothing_to_replay"),
        (("--from", "oldest", "--unreached"), "nothing_to_replay"),
        (("--from", "oldest", "--type", "nothing"), "unknown_type"),
        (("--from", "oldest", "--role", "nobody"), "unknown_login"),
    ],
)
def test_what_can_not_be_sent_is_refused(xbus: Xbus, bus: ParkedBus, options: tuple[str, ...], code: str) -> None:
    before = count(bus.url)
    result = xbus(*TO_STORE, *options, "--yes")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.endswith(f" [{code}]\n")
    assert ": " in result.stderr
    assert count(bus.url) == before


def test_a_type_that_is_answered_is_not_sent_again(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        connection.execute(update(event_type).values(immediate_reply=True))
    assert "[reply_wanted]" in xbus(*TO_STORE, *THAT_DAY, "--yes").stderr


@pytest.mark.parametrize("when", ["yesterday", "2030-13-01", "-1", "9" * 20, "0.5y"])
def test_a_place_that_is_none_is_a_wrong_command_line(xbus: Xbus, bus: ParkedBus, when: str) -> None:
    assert xbus(*TO_STORE, "--from", when, "--yes").exit_code == 2


@pytest.mark.parametrize("when", ["9000d", "-9000d", "2000-01-01T12:00:00+02:00", "1", "oldest"])
def test_a_place_may_be_said_in_several_ways(xbus: Xbus, bus: ParkedBus, when: str) -> None:
    assert "  3 envelopes," in told(xbus, *TO_STORE, "--from", when, "--dry-run")


def test_what_is_archived_is_told(xbus: Xbus, bus: ParkedBus) -> None:
    put_away(bus.url, bus.alone)
    before = count(bus.url)
    result = xbus(*TO_STORE, *THAT_DAY, "--yes")
    assert (result.exit_code, count(bus.url)) == (1, before)
    assert "the items of 1 envelope between these places are in an archive: restore those" in result.stderr
    assert "[envelope_archived]" in result.stderr
    sent = told(xbus, *TO_STORE, *THAT_DAY, "--without-archived", "--yes")
    assert "  left out: 1 envelope in an archive" in sent
    assert "Sent 2 envelopes with 7 items" in sent


def test_what_was_removed_is_told(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == bus.done).values(pruned_at=NOON))
    assert "  1 envelope of any type there: removed by retention" in told(xbus, *TO_STORE, *THAT_DAY, "--dry-run")


def test_a_new_role_hears_what_it_does_not_get(xbus: Xbus, bus: ParkedBus) -> None:
    role = (
        '[[role]]\nlogin = "new_1"\nservice = "new"\nstart = "oldest"\n[[service]]\nname = "new"\nkind = "consumer"\n'
    )
    result = xbus("apply", "-", stdin=role)
    assert "Role new_1 gets nothing yet: no event type has a node for service new. When one has: xbus" in result.stdout
    node = '[[event_type]]\nname = "clients"\n[[event_type.node]]\nname = "new"\nservice = "new"\n'
    assert xbus("apply", "-", "--owed", "keep", stdin=node).exit_code == 0
    sent = told(xbus, "replay", "--type", "clients", "--role", "new_1", "--from", "oldest", "--unreached", "--yes")
    assert "Sent 3 envelopes with 13 items to new_1." in sent


def test_history_that_wants_a_reply_is_told(xbus: Xbus, bus: ParkedBus) -> None:
    file = (
        '[[event_type]]\nname = "clients"\nimmediate_reply = true\n[[event_type.node]]\nname = "new"\nservice = "new"\n'
        '[[service]]\nname = "new"\nkind = "consumer"\n'
        '[[role]]\nlogin = "new_1"\nservice = "new"\nstart = "2030-01-01T00:00:00Z"\n'
    )
    before = count(bus.url)[0]
    result = xbus("apply", "-", "--owed", "keep", stdin=file)
    assert result.exit_code == 0, result.output
    assert 'Role new_1 does not get the earlier events of type "clients"' in result.stdout
    assert count(bus.url)[0] == before


def put_away(url: str, envelope_id: uuid.UUID) -> None:
    """Have an envelope be as one whose items are in an archive."""
    with writing(url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == envelope_id).values(pruned_at=NOON))
        connection.execute(insert(archived_envelope).values(envelope_id=envelope_id, archived_at=NOON))
