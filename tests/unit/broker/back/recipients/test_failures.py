"""What went wrong at a recipient, and what becomes of the envelope."""

import tracemalloc
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.recipients.failures import (
    CODE_CHARACTERS,
    MAX_ERRORS,
    MAX_INDICES,
    MESSAGE_CHARACTERS,
    NODE_CHARACTERS,
    FailureClass,
    failure_of_call,
    nonsense,
    own_fault,
    refusal,
)
from xbus.errors import ConnectionLost, Failed, JournalError, Refused, TimedOut, XbusError

LARGE = 16 * 1024 * 1024
"""The bytes of a large answer."""

ENVELOPE, EVENT = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.mark.parametrize(
    ("error", "failure_class", "code"),
    [
        (ConnectionLost("gone"), FailureClass.TRANSIENT, "connection_lost"),
        (TimedOut("silent"), FailureClass.TRANSIENT, "timed_out"),
        (Failed("broken", code="error_reply"), FailureClass.TRANSIENT, "error_reply"),
        (Failed("a date", code="bad_answer"), FailureClass.PERMANENT, "bad_answer"),
        (Refused("no", code="unknown_method"), FailureClass.PERMANENT, "unknown_method"),
    ],
)
def test_errors_have_a_class(error: XbusError, failure_class: FailureClass, code: str) -> None:
    failure = failure_of_call(7, "send_item", EVENT, error)
    assert (failure.failure_class, failure.code) == (failure_class, code)
    assert failure.cause == f"send_item: {error.cause}"
    (row,) = failure.rows(ENVELOPE)
    assert (row.envelope_id, row.event_id, row.role_id, row.verb) == (ENVELOPE, EVENT, 7, "send_item")


def test_a_refusal_names_items() -> None:
    failure = refusal(7, "send_item", EVENT, [[[0, 2], "too old"], [[5], "too new"]])
    assert failure.failure_class is FailureClass.PERMANENT
    assert [(row.indices, row.message) for row in failure.rows(ENVELOPE)] == [([0, 2], "too old"), ([5], "too new")]
    assert failure.cause == "send_item: too old"


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (None, "refused without a reason"),
        ([], "refused without a reason"),
        ("too old", "malformed error: too old"),
        (["too old"], "malformed error: too old"),
        (7, "malformed error: 7"),
        ({"errors": "no"}, "malformed error: {'errors': 'no'}"),
        ([[["0"], "too old"]], "malformed error: [['0'], 'too old']"),
        ([[[True], "too old"]], "malformed error: [[True], 'too old']"),
        ([["abc", "too old"]], "malformed error: ['abc', 'too old']"),
        ([[[0], "too old", 1]], "malformed error: [[0], 'too old', 1]"),
    ],
)
def test_a_malformed_refusal_is_kept_with_what_was_said(errors: object, message: str) -> None:
    (said,) = refusal(7, "send_item", EVENT, errors).errors
    assert (said.indices, said.message) == (None, message)


def test_a_refusal_without_a_list_around_it_loses_nothing() -> None:
    assert [error.message for error in refusal(7, "send_item", EVENT, [[0], "x"]).errors] == [
        "malformed error: [0]",
        "malformed error: x",
    ]


def test_a_malformed_message_does_not_cost_the_indices() -> None:
    (said,) = refusal(7, "send_item", EVENT, [[[0], 5]]).errors
    assert (said.indices, said.message) == ([0], "malformed error: 5")


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 2], "x"),
        ([], "x"),
        ([-1], "x (there is no item -1)"),
        ([0, 3, 4], "x (there is no item 3, 4)"),
        ([-1, 3], "x (there is no item -1) (there is no item 3)"),
        (list(range(9)), "x (there is no item 3, 4, 5, 6, 7, ...)"),
    ],
)
def test_indices_that_the_event_does_not_have_are_kept(indices: list[int], message: str) -> None:
    failure = refusal(7, "send_item", EVENT, [[indices, "x"]])
    failure.happened_at(["store"], 3)
    (row,) = failure.rows(ENVELOPE)
    assert (row.indices, row.message) == (indices, message)


def test_indices_at_the_end_of_an_envelope_are_of_no_certain_event() -> None:
    failure = refusal(7, "end_envelope", None, [[[7], "x"], [[-7], "y"]])
    assert [row.message for row in failure.rows(ENVELOPE)] == ["x", "y (there is no item -7)"]


def test_a_flood_of_indices_is_cut() -> None:
    (said,) = refusal(7, "send_item", EVENT, [[list(range(5_000)), "x"]]).errors
    assert said.indices == list(range(MAX_INDICES))
    assert said.message == "x (5000 items, the first 1000 are kept)"


def test_a_failure_knows_where_it_happened() -> None:
    failure = refusal(7, "send_item", EVENT, [[[0], "x"], [[1], "y"]])
    assert {row.node for row in failure.rows(ENVELOPE)} == {None}
    failure.happened_at(["left", "right"], 2)
    assert {row.node for row in failure.rows(ENVELOPE)} == {"left, right"}
    failure.happened_at(["n" * 200, "m" * 200], 2)
    assert {len(row.node or "") for row in failure.rows(ENVELOPE)} == {NODE_CHARACTERS}


WIRE_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@given(WIRE_VALUES)
def test_whatever_is_said_can_be_kept(said: object) -> None:
    for failure in (refusal(7, "send_item", EVENT, said), nonsense(7, "send_item", EVENT, said)):
        for row in failure.rows(ENVELOPE):
            assert len(row.message) <= MESSAGE_CHARACTERS + 200
            assert "\0" not in row.message
            assert len(row.code) <= CODE_CHARACTERS


def test_a_flood_of_errors_is_cut() -> None:
    failure = refusal(7, "send_item", EVENT, [[[index], "x" * 10_000] for index in range(10_000)])
    assert len(failure.rows(ENVELOPE)) == MAX_ERRORS
    assert len(failure.errors[0].message) == MESSAGE_CHARACTERS


def test_a_code_from_afar_is_cut() -> None:
    assert len(failure_of_call(7, "send_item", EVENT, Failed("x", code="c" * 500)).code) == CODE_CHARACTERS


def test_a_fault_of_the_broker_is_nobodys() -> None:
    failure = own_fault(ValueError("a\0b"))
    assert (failure.role_id, failure.code, failure.failure_class) == (None, "internal_error", FailureClass.PERMANENT)
    assert "\0" not in failure.cause


def test_an_error_of_the_journal_keeps_its_code_and_its_cure() -> None:
    missing = JournalError("the object is not there", "restore it", code="object_missing")
    for error in (missing, ExceptionGroup("parts", [ExceptionGroup("parts", [missing])])):
        failure = own_fault(error)
        assert (failure.role_id, failure.code, failure.failure_class) == (
            None,
            "object_missing",
            FailureClass.PERMANENT,
        )
        assert failure.cause == "deliver: the object is not there: restore it"


@pytest.mark.parametrize(
    "answer",
    [bytes(LARGE), [True, bytes(LARGE)], [[[]] * 300] * 300, {bytes(LARGE): "x" * LARGE}],
    ids=["bytes", "a list", "many lists", "a map"],
)
def test_an_answer_is_shown_at_the_cost_of_what_is_shown(answer: object) -> None:
    tracemalloc.start()
    try:
        (said,) = nonsense(7, "end_event", EVENT, answer).errors
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(said.message) < 1100
    assert peak < LARGE / 8
