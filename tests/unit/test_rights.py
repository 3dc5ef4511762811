"""Rights of people: pure."""

from datetime import UTC, datetime

import pytest

from xbus.broker.journal.people import check_name
from xbus.errors import Refused
from xbus.rights import Person, Right, covered, narrowed, read_rights, write_rights

NOON = datetime(2020, 2, 29, 12, tzinfo=UTC)


def person(*rights: Right, disabled_at: datetime | None = None) -> Person:
    return Person(1, "ada", frozenset(rights), disabled_at, NOON, None)


def allowed(of: Person) -> set[Right]:
    return {right for right in Right if of.may(right)}


@pytest.mark.parametrize("right", [Right.PROGRAMMER, Right.OPERATOR, Right.UPLOADER, Right.CLEARER])
def test_a_right_is_for_its_own_work_and_for_viewing(right: Right) -> None:
    assert allowed(person(right)) == {right, Right.VIEWER}


def test_a_manager_may_do_all_but_say_what_bots_run() -> None:
    assert allowed(person(Right.MANAGER)) == set(Right) - {Right.PROGRAMMER}
    assert allowed(person(Right.MANAGER, Right.PROGRAMMER)) == set(Right)


def test_everybody_may_view() -> None:
    assert allowed(person()) == allowed(person(Right.VIEWER)) == {Right.VIEWER}


def test_who_is_disabled_may_do_nothing() -> None:
    assert allowed(person(Right.MANAGER, disabled_at=NOON)) == set()


def test_rights_are_narrowed_to_those_of_a_token() -> None:
    manager, operator, viewer = {Right.MANAGER}, {Right.OPERATOR}, {Right.VIEWER}
    assert narrowed(manager, operator) == operator | viewer
    assert narrowed(operator, manager) == operator | viewer
    assert narrowed(manager, manager) == covered(manager) == set(Right) - {Right.PROGRAMMER}
    assert narrowed(manager | {Right.PROGRAMMER}, manager) == covered(manager)
    assert narrowed(operator, {Right.CLEARER}) == viewer


def test_rights_are_written_in_one_order_and_read_again() -> None:
    written = write_rights({Right.VIEWER, Right.CLEARER, Right.OPERATOR})
    assert written == "operator clearer viewer"
    assert read_rights(written) == {Right.OPERATOR, Right.CLEARER, Right.VIEWER}
    assert read_rights("") == frozenset()


def test_a_word_that_means_nothing_gives_no_right() -> None:
    assert read_rights("operator emperor") == {Right.OPERATOR}


@pytest.mark.parametrize("name", ["ada", "Zoë Ångström", "x" * 255, "名前", "<script>"])
def test_a_name_of_printable_characters_is_good(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", " ada", "ada ", "x" * 256, "a\x00b", "a\nb", "a\x1b[31m", "\u202eada", "a\u2066b", "a\u200bb", "\ud800"],
)
def test_a_name_that_nobody_could_tell_apart_is_refused(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_name(name)
    assert caught.value.code == "bad_name"
    assert str(caught.value).isprintable()
