"""The bus that is measured: the real broker in a process of its own, with one emitter and one consumer."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tests.support.daemon import Daemon, Options
from tests.support.forked import ANEW
from xbus import model
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
def running_bus(url: str, bus: BusSpec | None = ONE_CONSUMER, options: Options | None = None) -> Iterator[Daemon]:
    """A broker on the database at ``url``, whose emitters and recipients may log in.

    Args:
        bus: what it serves; None for what was set up there before.
        options: what its configuration says beyond the usual.
    """
    if bus is not None:
        set_up(url, bus)
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
        # Not as a fork of the tests' nursery, which has imported all programs: its memory would be the broker's.
        daemon = Daemon(Path(folder), url, options).start(env=ANEW)
        try:
            yield daemon
            assert daemon.stop() == 0, daemon.log
        finally:
            daemon.kill()


def add_roles(url: str, service: str, logins: Sequence[str]) -> None:
    """Add consumer roles at the start of the log by bulk SQL, as thousands take long otherwise; nobody can log in."""
    with writing(url) as connection:
        service_id = connection.execute(sa.select(model.service.c.id).where(model.service.c.name == service)).scalar()
        connection.execute(sa.insert(model.role), [{"login": login, "service_id": service_id} for login in logins])
        ids = connection.execute(sa.select(model.role.c.id).where(model.role.c.service_id == service_id)).scalars()
        start = {"from_position": 1, "position": 0, "handed_to": 0, "done": b""}
        connection.execute(sa.insert(model.cursor), [{"role_id": role_id, **start} for role_id in ids])


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
