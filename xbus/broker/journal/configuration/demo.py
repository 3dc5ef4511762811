"""The classic demo rows, which tutorials of the bus have always used; for trying only."""

from sqlalchemy import Connection

from xbus.broker.journal.configuration.entries import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.configuration.logins import logins_without_password, set_password
from xbus.broker.journal.configuration.plan import make_plan
from xbus.broker.journal.configuration.reading import read_stored
from xbus.broker.journal.configuration.writing import apply
from xbus.clock import Clock, SystemClock
from xbus.passwords import Passwords

DEMO_PASSWORD = "password"  # noqa: S105
"""Known to everyone, so fit for nothing but a try."""

DEMO_LOGINS = frozenset({"test_emitter", "consumer_role", "worker_role"})


def demo_bus() -> BusSpec:
    """Make one event type that reaches one consumer by two ways: as emitted, and through a worker."""
    nodes = (
        NodeSpec("consumer", "consumer_service"),
        NodeSpec("worker", "worker_service", ("worker_consumer",)),
        NodeSpec("worker_consumer", "consumer_service"),
    )
    return BusSpec(
        event_types={"test_event": EventTypeSpec("test_event", False, {node.name: node for node in nodes})},
        services={
            "consumer_service": ServiceSpec("consumer_service", "consumer"),
            "worker_service": ServiceSpec("worker_service", "worker"),
        },
        roles={
            "consumer_role": RoleSpec("consumer_role", "consumer_service"),
            "worker_role": RoleSpec("worker_role", "worker_service"),
        },
        profiles={"test_profile": ProfileSpec("test_profile", frozenset({"test_event"}))},
        emitters={"test_emitter": EmitterSpec("test_emitter", "test_profile")},
    )


def add_demo_rows(connection: Connection, passwords: Passwords | None = None, clock: Clock | None = None) -> None:
    """Add the demo rows, or restore them, in the caller's transaction; repeats are harmless.

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
