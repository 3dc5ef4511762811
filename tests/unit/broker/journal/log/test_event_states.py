"""The state of an event, for each mix of where its envelope stands with its consumers."""

import pytest

from xbus.broker.journal.log.event_states import event_state
from xbus.broker.journal.log.role_progress import RoleProgress
from xbus.states import EnvelopeState

OPEN, RECEIVED, CANCELLED = EnvelopeState.OPEN, EnvelopeState.RECEIVED, EnvelopeState.CANCELLED


def roles(states: str) -> list[RoleProgress]:
    """A role in each of these states; a ``*`` says that it may have it in its hands."""
    return [
        RoleProgress(f"store_{number}", "store", state.rstrip("*"), under_way=state.endswith("*"))
        for number, state in enumerate(states.split())
    ]


@pytest.mark.parametrize(
    ("states", "of_event"),
    [
        ("", "pending"),
        ("owed", "pending"),
        ("waiting", "pending"),
        ("retry", "pending"),
        ("owed waiting retry", "pending"),
        ("owed*", "delivering"),
        ("retry*", "delivering"),
        ("waiting owed*", "delivering"),
        ("done", "done"),
        ("done done", "done"),
        ("done owed", "partial"),
        ("done owed*", "partial"),
        ("done waiting", "partial"),
        ("done retry*", "partial"),
        ("done parked", "partial"),
        ("done done parked owed", "partial"),
        ("parked", "stopped"),
        ("parked parked", "stopped"),
        ("parked owed", "stopped"),
        ("parked retry*", "stopped"),
        ("retried", "stopped"),
        ("retried done", "partial"),
        ("dropped", "stopped"),
        ("dropped done", "partial"),
    ],
)
def test_the_state_of_an_event_of_a_received_envelope(states: str, of_event: str) -> None:
    assert event_state(RECEIVED, roles(states)) == of_event
    assert event_state(RECEIVED, roles(states)[::-1]) == of_event


def test_the_state_of_an_event_of_another_envelope() -> None:
    assert event_state(OPEN, []) == "pending"
    assert event_state(CANCELLED, []) == "cancelled"
