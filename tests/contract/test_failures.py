"""Failures on every database: what is written, groups, and moves of people on one, on some and on a group."""

import uuid

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, looking
from xbus import model
from xbus.broker.journal.audit import acting_as
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.operations.failure_moves import (
    Assign,
    Comment,
    FailureMove,
    Track,
    move_failures,
    move_group_page,
)
from xbus.broker.journal.operations.failures import (
    FailureGroup,
    FailureSummary,
    GroupBounds,
    GroupFilters,
    list_failures,
    list_groups,
    show_failure,
    show_group,
)
from xbus.broker.journal.writes import Failure, ProgressUpdate
from xbus.errors import Refused
from xbus.states import TrackingState

CORRECTED, PROCESSING = TrackingState.CORRECTED, TrackingState.PROCESSING


async def write(journal: Journal, envelope_id: uuid.UUID, role_id: int | None, *messages: str) -> None:
    """Write failures as the back does."""
    failures = [Failure(envelope_id, None, role_id, "end_envelope", "refused", message) for message in messages]
    await journal.write(ProgressUpdate(NOW, failures=failures))


def failures_of(url: str, **filters: object) -> list[FailureSummary]:
    with reading(url) as connection:
        return list_failures(connection, limit=10_000, **filters)  # type: ignore[arg-type]


def groups_of(url: str, *, before: int | None = None, limit: int = 20, **filters: object) -> list[FailureGroup]:
    with reading(url) as connection:
        page = list_groups(connection, GroupFilters(**filters), before=before, limit=limit)  # type: ignore[arg-type]
    return list(page.groups)


def paged(url: str, limit: int, bounds: GroupBounds, **filters: object) -> list[list[str]]:
    """The fingerprints of each page, from the first to the last."""
    found, before = [], None
    with reading(url) as connection:
        while True:
            filtered = GroupFilters(**filters)  # type: ignore[arg-type]
            page = list_groups(connection, filtered, before=before, limit=limit, bounds=bounds)
            found.append([group.fingerprint for group in page.groups])
            if page.before is None:
                return found
            assert before is None or page.before < before
            before = page.before


def move_all(url: str, fingerprint: str, move: FailureMove, until: int, limit: int = 3) -> int:
    moved, after = 0, 0
    while True:
        with writing(url) as connection, acting_as("ada", "10.0.0.7"):
            step = move_group_page(connection, fingerprint, move, NOW, after=after, until=until, limit=limit)
        moved += step.moved
        if step.last_id is None:
            return moved
        after = step.last_id


@pytest.fixture
async def url(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> str:
    """A database with three groups: eight failures of a role, two of another, and one of nobody, the newest."""
    envelope_id = (await shared_scribe.put([b"x"], type_name="notes")).envelope_id
    with looking(shared_url) as connection:
        roles = {role.login: role.id for role in read_catalog(connection).roles.values()}
    first, second = (roles[login] for login in sorted(roles) if login.startswith("store"))
    await write(shared_journal, envelope_id, first, *(f"no client {number}" for number in range(8)))
    await write(shared_journal, envelope_id, second, "no client 3", "no client 44")
    await write(shared_journal, envelope_id, None, "\x1b[2J<script> a fault in /srv/x")
    return shared_url


async def test_the_newest_group_is_the_first(url: str) -> None:
    found = groups_of(url)
    assert [(group.count, dict(group.tracking)) for group in found] == [
        (1, {TrackingState.UNPROCESSED: 1}),
        (2, {TrackingState.UNPROCESSED: 2}),
        (8, {TrackingState.UNPROCESSED: 8}),
    ]
    assert [group.newest.role is None for group in found] == [True, False, False]
    assert found[2].newest.message == "no client 7"
    assert {group.first_at for group in found} == {NOW}
    assert len({group.fingerprint for group in found}) == 3
    page = groups_of(url, limit=2)
    assert page == found[:2]
    assert groups_of(url, before=page[-1].newest.id) == found[2:]


async def test_groups_are_found_by_what_they_have(url: str) -> None:
    nobodys, second, first = groups_of(url)
    ids = [each.id for each in failures_of(url, fingerprint=first.fingerprint)]
    with writing(url) as connection:
        move_failures(connection, ids[:2], Track(CORRECTED), NOW)
        move_failures(connection, ids[1:3], Assign("ada"), NOW)
    (corrected,) = groups_of(url, state=CORRECTED)
    assert dict(corrected.tracking) == {TrackingState.UNPROCESSED: 6, CORRECTED: 2}
    assert corrected.owners == ("ada",)
    assert [group.fingerprint for group in groups_of(url, owner="ada")] == [first.fingerprint]
    assert [group.fingerprint for group in groups_of(url, role=second.newest.role)] == [second.fingerprint]
    assert len(groups_of(url, code="refused")) == 3
    assert groups_of(url, code="a\x00b") == groups_of(url, owner="ben") == groups_of(url, state=PROCESSING) == []
    assert [each.owner for each in failures_of(url, owner="ada")] == ["ada", "ada"]
    assert len(failures_of(url, fingerprint=nobodys.fingerprint)) == 1
    with pytest.raises(Refused, match="no role"):
        groups_of(url, role="a\x00b")


@pytest.mark.parametrize("bounds", [GroupBounds(), GroupBounds(newest=2), GroupBounds(newest=2, groups=2, failures=3)])
async def test_a_list_of_many_groups_leaves_none_out(url: str, shared_journal: Journal, bounds: GroupBounds) -> None:
    *_, oldest = groups_of(url)
    envelope_id = oldest.newest.envelope_id
    await write(shared_journal, envelope_id, None, *(f"fault {letter}" for letter in "abcdefgh"))
    await write(shared_journal, envelope_id, None, *(f"[2J<script> a fault in /srv/{number}" for number in range(9)))
    every = [group.fingerprint for group in groups_of(url)]
    assert len(set(every)) == 11
    for limit in (1, 3, 11):
        pages = paged(url, limit, bounds)
        assert [each for page in pages for each in page] == every
        assert all(len(page) <= limit for page in pages)
    assert [each for page in paged(url, 4, bounds, role=oldest.newest.role) for each in page] == [oldest.fingerprint]
    assert [each for page in paged(url, 4, bounds, owner="ben") for each in page] == []


async def test_a_group_is_shown_page_by_page(url: str) -> None:
    *_, first = groups_of(url)
    with reading(url) as connection:
        detail = show_group(connection, first.fingerprint, limit=5)
        rest = show_group(connection, first.fingerprint, before=detail.failures[-1].id, limit=5)
    assert detail.group == rest.group == first
    assert [each.message[-1] for each in (*detail.failures, *rest.failures)] == list("76543210")
    for wrong in ("0" * 16, "x", "", "a\x00", "\ud800"):
        with reading(url) as connection, pytest.raises(Refused) as refusal:
            show_group(connection, wrong)
        assert refusal.value.code == "failure_group_unknown"


async def test_a_group_is_moved_in_short_transactions(url: str) -> None:
    *_, first = groups_of(url)
    newest = first.newest.id
    ids = sorted(each.id for each in failures_of(url, fingerprint=first.fingerprint))
    with writing(url) as connection:
        move_failures(connection, [ids[1]], Track(CORRECTED, "alone"), NOW)
    assert move_all(url, first.fingerprint, Track(CORRECTED, "all\x00"), until=ids[-2]) == 6
    assert move_all(url, first.fingerprint, Track(CORRECTED), until=ids[-2]) == 0
    assert move_all(url, first.fingerprint, Assign("ada"), until=newest) == 8
    assert move_all(url, first.fingerprint, Comment("asked Ben"), until=newest) == 8
    with reading(url) as connection:
        detail = show_group(connection, first.fingerprint)
        shown = show_failure(connection, ids[0])
        audit = connection.execute(
            sa.select(model.audit.c.action, model.audit.c.after, sa.func.count())
            .where(model.audit.c.who == "ada")
            .group_by(model.audit.c.action, model.audit.c.after)
            .order_by(model.audit.c.action)
        ).all()
    assert dict(detail.group.tracking) == {TrackingState.UNPROCESSED: 1, CORRECTED: 7}
    assert [(move.who, move.told, move.comment) for move in detail.history] == [
        ("ada", "corrected", "all\ufffd"),
        ("ada", "corrected", ""),
        ("ada", "assigned ada", ""),
        ("ada", "commented", "asked Ben"),
    ]
    assert shown is not None
    assert [move.told for move in shown.history] == ["corrected", "assigned ada", "commented"]
    assert audit == [("assigned", "ada", 8), ("commented", "", 8), ("tracked", "corrected", 6)]


async def test_some_are_moved_together_or_not_at_all(url: str) -> None:
    newest, *_, oldest = failures_of(url)
    with writing(url) as connection:
        move_failures(connection, [newest.id], Track(CORRECTED), NOW)
    for ids, move, code in (
        ([oldest.id, newest.id], Track(CORRECTED), "tracking_refused"),
        ([oldest.id], Track(TrackingState.UNPROCESSED), "tracking_refused"),
        ([oldest.id], Assign(None), "assigned_already"),
        ([oldest.id, 999_999], Comment("x"), "failure_unknown"),
    ):
        with pytest.raises(Refused) as refusal, writing(url) as connection:
            move_failures(connection, ids, move, NOW)
        assert refusal.value.code == code
    with reading(url) as connection:
        shown = show_failure(connection, oldest.id)
        assert show_failure(connection, 2**63) is show_failure(connection, 0) is None
    assert shown is not None
    assert (shown.summary.tracking, shown.history) == (TrackingState.UNPROCESSED, ())
