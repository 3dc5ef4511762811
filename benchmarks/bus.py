"""The bus that is measured: the real broker in a process of its own, with one emitter and one consumer."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.daemon import Daemon
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
    set_password,
)
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.passwords import Passwords

EVENT_TYPE = "invoices"
EMITTER = "shop"
CONSUMER = "books"
PASSWORD = "benchmark"

ONE_CONSUMER = BusSpec(
    event_types={EVENT_TYPE: EventTypeSpec(EVENT_TYPE, False, {"books": NodeSpec("books", "books")})},
    services={"books": ServiceSpec("books", "consumer")},
    roles={CONSUMER: RoleSpec(CONSUMER, "books")},
    profiles={"shops": ProfileSpec("shops", frozenset({EVENT_TYPE}))},
    emitters={EMITTER: EmitterSpec(EMITTER, "shops")},
)


@contextmanager
def running_bus(url: str, bus: BusSpec = ONE_CONSUMER) -> Iterator[Daemon]:
    """A broker on the database at ``url``, whose emitters and recipients may log in.

    Args:
        bus: what it serves.
    """
    set_up(url, bus)
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
        daemon = Daemon(Path(folder), url).start()
        try:
            yield daemon
            assert daemon.stop() == 0, daemon.log
        finally:
            daemon.kill()


def set_up(url: str, bus: BusSpec = ONE_CONSUMER) -> None:
    """Make a bus in a database; one password lets all its emitters and roles in."""
    now = SystemClock().now()
    password = Passwords().hash_password(PASSWORD)
    with writing(url) as connection:
        apply(connection, make_plan(read_stored(connection), bus), now)
        for login in bus.emitters:
            set_password(connection, "emitter", login, password, now)
        for login in bus.roles:
            set_password(connection, "role", login, password, now)
