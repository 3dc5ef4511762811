"""What went wrong at a recipient, and what becomes of the envelope."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xbus.broker.back.failures import (
    CODE_CHARACTERS,
    MAX_ERRORS,
    MESSAGE_CHARACTERS,
    FailureClass,
    failure_of_call,
    nonsense,
    own_fault,
    refusal,
)
from xbus.errors import ConnectionLost, Failed, Refused, TimedOut, XbusError

ENVELOPE, EVENT = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.mark.parametrize(
    ("error", "failure_class", "code"),
    [
        (ConnectionLost("gone"), FailureClass.LOST, "connection_lost"),
        (TimedOut("silent"), FailureClass.TRANSIENT, "timed_out"),
        (Failed("broken", code="error_reply"), FailureClass.TRANSIENT, "error_reply"),
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
        ("too old", "too old"),
        (["too old"], "too old"),
        (7, "7"),
        ([[["0"], "too old"]], "[['0'], 'too old']"),
        ([[[True], "too old"]], "[[True], 'too old']"),
        ([[[0], 7]], "7"),
    ],
)
def test_a_refusal_in_other_words(errors: object, message: str) -> None:
    assert refusal(7, "send_item", EVENT, errors).errors[0].message == message


WIRE_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@settings(deadline=None)
@given(WIRE_VALUES)
def test_whatever_is_said_can_be_kept(said: object) -> None:
    for failure in (refusal(7, "send_item", EVENT, said), nonsense(7, "send_item", EVENT, said)):
        for row in failure.rows(ENVELOPE):
            assert len(row.message) <= MESSAGE_CHARACTERS + 100
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
