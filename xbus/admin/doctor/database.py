"""The doctor's look at the database: whether it answers, fits this program, keeps its promises, and knows the time."""

from collections.abc import Iterator
from datetime import timedelta

from xbus.admin.doctor.findings import DoctorFinding, of_error
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.promises import (
    NO_CHECKSUMS,
    STANDBY_CAUSE,
    STANDBY_NOT_SYNCHRONOUS,
    STANDBY_STEP,
    check_promises,
    has_asynchronous_standby,
    lacks_checksums,
)
from xbus.broker.journal.operations.checkup import read_clock
from xbus.clock import Clock
from xbus.config import without_secrets
from xbus.errors import XbusError

MOST_APART = timedelta(seconds=5)
"""The most that the clocks of this machine and the database may differ. Leases and moments of replays compare them."""


def look_at_database(url: str, clock: Clock) -> Iterator[DoctorFinding]:
    """Find a database that can't be used as it is.

    Args:
        url: its SQLAlchemy URL.
        clock: of this machine.
    """
    about = without_secrets(url)
    try:
        schema.check(url)
        check_promises(url)
        with reading(url) as connection:
            unsafe_standby = has_asynchronous_standby(connection)
            is_unchecked = lacks_checksums(connection)
            apart = abs(read_clock(connection, clock.now()) - clock.now())
    except XbusError as error:
        yield of_error(error, about)
        return
    if is_unchecked:
        yield DoctorFinding("no_checksums", about, *NO_CHECKSUMS, is_problem=False)
    if unsafe_standby:
        yield DoctorFinding(STANDBY_NOT_SYNCHRONOUS, about, STANDBY_CAUSE, STANDBY_STEP, is_problem=False)
    if apart > MOST_APART:
        yield DoctorFinding(
            "clocks_differ",
            about,
            f"the clocks of this machine and of the database are {apart.total_seconds():.0f} s apart",
            "let both follow NTP",
        )
