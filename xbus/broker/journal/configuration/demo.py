"""The classic demo rows, which tutorials of the bus have always used; for trying only."""

from sqlalchemy import Connection

from xbus.broker.journal.configuration.entries import Bus, Emitter, EventType, Node, Profile, Role, Service
from xbus.broker.journal.configuration.logins import logins_without_password, set_password
from xbus.broker.journal.configuration.plan import make_plan
from xbus.broker.journal.configuration.reading import read_stored
from xbus.broker.journal.configuration.writing import apply
from xbus.clock import Clock, SystemClock
from xbus.passwords import Passwords

DEMO_PASSWORD = "password"
"""Known to everyone, so fit for nothing but a try."""

DEMO_LOGINS = frozenset({"test_emitter", "consumer_role", "worker_role"})


def demo_bus() -> Bus:
    """One event type that reaches one consumer by two ways: as emitted, and through a worker."""
    nodes = (
        Node("consumer", "consumer_service"),
        Node("worker", "worker_service", ("worker_consumer",)),
        Node("worker_consumer", "consumer_service"),
    )
    return Bus(
        event_types={"test_event": EventType("test_event", False, {node.name: node for node in nodes})},
        services={
            "consumer_service": Service("consumer_service", "consumer"),
            "worker_service": Service("worker_service", "worker"),
        },
        roles={
            "consumer_role": Role("consumer_role", "consumer_service"),
            "worker_role": Role("worker_role", "worker_service"),
        },
        profiles={"test_profile": Profile("test_profile", frozenset({"test_event"}))},
        emitters={"test_emitter": Emitter("test_emitter", "test_profile")},
    )


def add_demo_rows(connection: Connection, passwords: Passwords | None = None, clock: Clock | None = None) -> None:
    """Add the demo rows, or bring them back to what they were, in the caller's transaction; it may be repeated.

    A password that was set meanwhile stays.

    Raises:
        ConfigurationError: an entry of the same name is in the way, such as a service of another kind.
    """
    at = (clock or SystemClock()).now()
    apply(connection, make_plan(read_stored(connection), demo_bus()), at)
    missing = [(kind, login) for kind, login in logins_without_password(connection) if login in DEMO_LOGINS]
    if missing:
        hasher = passwords or Passwords()
        for kind, login in missing:
            set_password(connection, kind, login, hasher.hash_password(DEMO_PASSWORD), at)
