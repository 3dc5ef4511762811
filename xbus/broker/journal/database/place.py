"""The place of a journal: a restart of the broker finds it again, and a copy of the journal has another one.

Everything that is stored in a database is copied with it. So a place is made of what surrounds the database: for SQLite
the file itself (machine, path and inode), for PostgreSQL the server and the database there, and how they are reached.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import sqlalchemy as sa

from xbus.broker.journal.database.engine import is_memory
from xbus.errors import JournalUnavailable

MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
MACHINE_CHARACTERS = 12
"""Characters of a machine's hashed id: enough to tell machines apart, and short enough to compare by eye."""

LOCAL_HOST = re.compile(r"localhost|127\.[\d.]+|::1|/.*|@.*|")
"""A host that means another server on another machine; also a folder of sockets, and none at all."""

UNKNOWN = "unknown"

_MAY_ASK = "SELECT has_function_privilege('pg_control_system()', 'execute')"
_SYSTEM = "SELECT system_identifier FROM pg_control_system()"
_DATABASE = "SELECT oid FROM pg_database WHERE datname = current_database()"


def read_place(connection: sa.Connection) -> str:
    """Describe the place of the journal, in words that an operator can compare.

    Raises:
        JournalUnavailable: the file of the database is gone.
    """
    if is_memory(connection.engine):
        return "in memory"
    if connection.dialect.name == "postgresql":
        return _place_on_server(connection)
    return _place_of_file(connection)


def _place_of_file(connection: sa.Connection) -> str:
    # SQLite itself tells the path, whichever way it was written in the URL; it has none in memory.
    path: str = next(row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main")
    real = os.path.realpath(path)
    try:
        inode = os.stat(real).st_ino
    except OSError as error:
        cause = f"the file of the database can't be looked at ({error.strerror}: {real})"
        raise JournalUnavailable(cause, "see that it is there, then start the broker again") from error
    return f"file {real}, inode {inode}, machine {_machine()}"


def _place_on_server(connection: sa.Connection) -> str:
    may_ask: bool = connection.exec_driver_sql(_MAY_ASK).scalar_one()
    system = connection.exec_driver_sql(_SYSTEM).scalar_one() if may_ask else UNKNOWN
    database = connection.exec_driver_sql(_DATABASE).scalar_one()
    driver = connection.connection.driver_connection
    assert driver is not None
    return f"PostgreSQL system {system}, database {database}, reached at {_address(driver.info.dsn_parameters)}"


def _address(parameters: Mapping[str, str]) -> str:
    """Describe the way to the server: a base backup of a server is the same system with the same databases."""
    hosts = parameters.get("host") or parameters.get("hostaddr") or ""
    # The driver fills the port in only where one is given or set around it.
    address = f"{hosts or 'local socket'}:{parameters.get('port') or 5432}/{parameters.get('dbname', '')}"
    is_local = any(LOCAL_HOST.fullmatch(host) for host in hosts.split(","))
    return f"{address} from machine {_machine()}" if is_local else address


def _machine(files: Sequence[Path] = MACHINE_ID_FILES) -> str:
    """Read a machine's id, hashed because it should not leave the machine; containers often have none."""
    for path in files:
        try:
            found = path.read_text().strip()
        except OSError:
            continue
        if re.fullmatch("[0-9a-f]{32}", found):
            return hashlib.sha256(b"xbus place " + found.encode()).hexdigest()[:MACHINE_CHARACTERS]
    return UNKNOWN
