"""The doctor's look at object stores: whether each is there, and belongs to this journal."""

from collections.abc import Iterator

from xbus.admin.doctor.findings import DoctorFinding, of_error
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.objects.claiming import check_stores


def look_at_objects(connection: Connection, place: str) -> Iterator[DoctorFinding]:
    """Find stores that this journal can't use; ``xbus fsck`` looks at each object in them.

    Args:
        connection: to a database with the schema of this program.
        place: as the configuration names it; empty for none.
    """
    for about, error in check_stores(connection, place):
        yield of_error(error, about)
