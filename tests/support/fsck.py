"""Examines journals of tests as ``xbus fsck`` does, in the process of the test."""

from xbus.broker.journal.database.connection import connected_to_states
from xbus.broker.journal.fsck.examination import examine
from xbus.broker.journal.fsck.faults import Fault, FaultCode


def examined(url: str) -> list[Fault]:
    """The faults of a journal; not that PostgreSQL keeps no checksums here."""
    with connected_to_states(url) as connection:
        found = list(examine(connection, lambda rows: None))
    return [fault for fault in found if fault.code is not FaultCode.NO_CHECKSUMS]
