"""The doctor's look at the bus in the database: logins, graphs, and registrations that were made elsewhere."""

from collections.abc import Iterator
from shlex import quote

from xbus.admin.doctor.findings import DoctorFinding
from xbus.broker.journal.configuration import logins_without_password
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.checkup import read_services_without_role, read_types_without_node
from xbus.broker.journal.operations.copies import read_foreign


def look_at_bus(connection: Connection) -> Iterator[DoctorFinding]:
    """Find what an administrator has left unfinished.

    Args:
        connection: to a database with the schema of this program.
    """
    for kind, login in logins_without_password(connection):
        yield DoctorFinding(
            "no_password",
            login,
            f"the {kind} {login} has no password, so it can't log in",
            f"xbus password {kind} {quote(login)}",
        )
    for service in read_services_without_role(connection):
        yield DoctorFinding(
            "service_without_role",
            service,
            f"the service {service} is in a graph and no role serves it, so nobody gets what comes there",
            f'add a [[role]] with service = "{service}" to the bus file',
        )
    for name in read_types_without_node(connection):
        yield DoctorFinding(
            "type_without_node",
            name,
            f"events of the type {name} lead to no service",
            "add an [[event_type.node]] to the bus file, or remove the type",
            is_problem=False,
        )
    for foreign in read_foreign(connection):
        yield DoctorFinding(
            "foreign_registration",
            foreign.role,
            f"the role {foreign.role} registered where this journal was before, so nobody calls it",
            "xbus journal adopt if this is the live journal, xbus journal forget if it is a copy",
        )
