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
        ("", "wait"),
        ("owed", "wait"),
        ("waiting", "wait"),
        ("retry", "wait"),
        ("owed waiting retry", "wait"),
        ("owed*", "exec"),
        ("retry*", "exec"),
        ("waiting owed*", "exec"),
        ("done", "done"),
        ("done done", "done"),
        ("done owed", "part"),
        ("done owed*", "part"),
        ("done waiting", "part"),
        ("done retry*", "part"),
        ("done parked", "part"),
        ("done done parked owed", "part"),
        ("parked", "stop"),
        ("parked parked", "stop"),
        ("parked owed", "stop"),
        ("parked retry*", "stop"),
        ("retried", "stop"),
        ("retried done", "part"),
        ("dropped", "stop"),
        ("dropped done", "part"),
    ],
)
def test_the_state_of_an_event_of_a_received_envelope(states: str, of_event: str) -> None:
    assert event_state(RECEIVED, roles(states)) == of_event
    assert event_state(RECEIVED, roles(states)[::-1]) == of_event


def test_the_state_of_an_event_of_another_envelope() -> None:
    assert event_state(OPEN, []) == "wait"
    assert event_state(CANCELLED, []) == "canc"
