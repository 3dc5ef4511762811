"""The rules that hold for every session of the bus in PostgreSQL: which one is ended, and what is set at its beginning.

A session that has served for a year may stop serving: its server was demoted and now only reads, or a pooler has put
another server behind it. The driver keeps such a session open. So an error that says that a session is of no use ends
it here, and each transaction looks first whether its server still writes. The next use opens a new session, which leads
to the server that leads now.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import psycopg2
from psycopg2 import errorcodes, extensions

from xbus.errors import JournalUnavailable

ENDING_CODES = frozenset(
    {
        errorcodes.READ_ONLY_SQL_TRANSACTION,
        errorcodes.ADMIN_SHUTDOWN,
        errorcodes.CRASH_SHUTDOWN,
        errorcodes.CANNOT_CONNECT_NOW,
        errorcodes.DATABASE_DROPPED,
        errorcodes.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        # A prepared statement that the session made and another one has, or has not: a pooler has changed the server.
        errorcodes.DUPLICATE_PREPARED_STATEMENT,
        errorcodes.INVALID_SQL_STATEMENT_NAME,
    }
)
"""The SQLSTATEs of errors after which a session serves nobody; those of the class 08 do, too."""

CONNECTION_CLASS = "08"

REPORTING_VERSION = 14_00_00
"""The first version, as libpq numbers them, that reports by itself whether a session only reads."""

NO_TIMEOUTS = (
    (0, ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")),
    (14_00_00, ("idle_session_timeout",)),
    (17_00_00, ("transaction_timeout",)),
)
"""The time-outs that would end an upgrade, a pruning or an idle session, each with its first version. A database or a
role may set them. The bus has time-outs of its own."""

AT_LEAST_ON = """
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
    ELSE current_setting('synchronous_commit') END, false)
"""
"""Set for the session, so that no later change of the server's configuration makes its commits less durable."""

Parameters: TypeAlias = Any
"""The values of a statement, as the driver takes them."""


def ends_session(error: BaseException | None) -> bool:
    """Check whether an error of the driver says that its session is of no more use."""
    code = getattr(error, "pgcode", None)
    return code is not None and (code in ENDING_CODES or code.startswith(CONNECTION_CLASS))


def was_refused(error: BaseException | None) -> bool:
    """Check whether a server that goes on refused a statement, and so has rolled its transaction back.

    One that panics for want of disk may have written the record of the COMMIT, and find it when it recovers.
    """
    is_error = isinstance(error, psycopg2.Error) and error.diag.severity_nonlocalized == "ERROR"
    return is_error and not ends_session(error)


class PostgresCursor(extensions.cursor):
    """A cursor that ends its session by an error after which that serves nobody."""

    connection: "PostgresSession"

    def execute(self, query: Any, vars: Parameters = None) -> None:
        """Execute a statement."""
        if self.connection.begins:
            self.connection.begins = False
            query = f"BEGIN; {query}"
        try:
            super().execute(query, vars)
        except psycopg2.Error as error:
            self._look_at(error)
            raise

    def executemany(self, query: Any, vars_list: Parameters) -> None:
        """Execute a statement with each of the values."""
        self._begin()
        try:
            super().executemany(query, vars_list)
        except psycopg2.Error as error:
            self._look_at(error)
            raise

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        """Copy rows in or out."""
        self._begin()
        try:
            super().copy_expert(sql, file, size)
        except psycopg2.Error as error:
            self._look_at(error)
            raise

    def _begin(self) -> None:
        """Begin the transaction, as a ``COPY`` can't share a message."""
        if self.connection.begins:
            self.connection.begins = False
            self.execute("BEGIN")

    def _look_at(self, error: psycopg2.Error) -> None:
        if ends_session(error):
            self.connection.close()


class PostgresSession(extensions.connection):
    """A connection to PostgreSQL that is closed by an error after which it serves nobody."""

    reads_only = False
    """Of a server that does not report it: whether the session only read when it began."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared: set[str] = set()
        """The names of the statements that the session has prepared."""
        self.begins = False
        """Whether the next statement begins a transaction."""
        self.is_own = False
        """Whether this class began the transaction, and not the driver."""
        self.guard: tuple[str, Sequence[object]] | None = None
        """A statement that shares the message of the COMMIT. It divides by zero where nothing may be committed."""
        self._last: tuple[str, Sequence[object], Callable[[psycopg2.IntegrityError], None]] | None = None
        """The last statements, which share that message, too; see ``end_with``."""

    def begin_with_next(self) -> None:
        """Begin a transaction together with the next statement: the driver would wait for an answer to ``BEGIN``."""
        self.autocommit = True
        self.begins = self.is_own = True

    def end_with(
        self, statements: str, values: Sequence[object], refuse: Callable[[psycopg2.IntegrityError], None]
    ) -> None:
        """Execute the last statements of a transaction in the message of its COMMIT, which spares a round trip.

        Args:
            refuse: gets an error of them, and may raise a better one.
        """
        assert not self.begins, "a transaction begins with a statement of its own"
        self._last = statements, values, refuse

    def _end_own(self, statement: str, values: Parameters = None) -> None:
        has_begun, self.begins, self.is_own, self.guard, self._last = not self.begins, False, False, None, None
        try:
            if has_begun:
                with closing(self.cursor()) as cursor:
                    cursor.execute(statement, values)
        except Exception:
            if not self.closed and self.info.transaction_status != extensions.TRANSACTION_STATUS_IDLE:
                # The server leaves out what stands behind a statement that failed, so it has not committed. It got
                # nothing of a message whose values the driver can't write.
                with closing(self.cursor()) as cursor:
                    cursor.execute("ROLLBACK")
            raise
        finally:
            if not self.closed:
                self.autocommit = False

    def commit(self) -> None:
        """Commit the transaction.

        Raises:
            DivisionByZero: its guard lets nothing be committed.
            IntegrityError: its last statements break a rule of the tables.
        """
        if self.is_own:
            # A writer that was superseded is told so, whatever its rows meet.
            guard, guard_values = self.guard or ("", ())
            rows, row_values, refuse = self._last or ("", (), None)
            try:
                statements = "; ".join(filter(None, (guard, rows, "COMMIT")))
                self._end_own(statements, (*guard_values, *row_values))
            except psycopg2.IntegrityError as error:
                if refuse is not None:
                    refuse(error)
                raise
            return
        try:
            super().commit()
        except psycopg2.Error as error:
            if ends_session(error):
                self.close()
            raise

    def rollback(self) -> None:
        """Roll the transaction back; that of a closed session is rolled back, and the error that closed it goes on."""
        if self.is_own and not self.closed:
            self._end_own("ROLLBACK")
        elif not self.closed:
            super().rollback()


ARGUMENTS = {"connection_factory": PostgresSession, "cursor_factory": PostgresCursor, "client_encoding": "UTF8"}
"""Makes the driver's connections such sessions, whatever encoding the environment or a role has chosen."""


def begin_session(session: PostgresSession) -> None:
    """Set a new session up."""
    names = (name for version, known in NO_TIMEOUTS if session.server_version >= version for name in known)
    statements = [*(f"SET {name} = 0" for name in names), AT_LEAST_ON]
    set_once(session, statements)
    if session.server_version < REPORTING_VERSION:
        session.autocommit = True
        with closing(session.cursor()) as cursor:
            cursor.execute("SHOW transaction_read_only")
            session.reads_only = cursor.fetchone() == ("on",)
        session.autocommit = False


def set_once(session: PostgresSession, statements: Sequence[str]) -> None:
    """Set settings of a session until it ends, in one question to the server."""
    session.autocommit = True
    with closing(session.cursor()) as cursor:
        cursor.execute(";".join(statements))
    session.autocommit = False


def is_read_only(session: PostgresSession, *, reads: bool = False) -> bool:
    """Check whether the session is of no use, as the server said last; this asks nobody.

    Args:
        reads: whether it is only to read: then it is of use unless its server repeats what another one writes.
    """
    says = session.get_parameter_status
    return says("in_hot_standby") == "on" or (
        not reads and (session.reads_only or says("default_transaction_read_only") == "on")
    )


def read_only_error() -> JournalUnavailable:
    """Make the error for those whom the database does not let write, or lets read only what may be old."""
    return JournalUnavailable(
        "the database only reads: its server is a standby, or is set to read-only",
        "see which server leads now, and that sqlalchemy.dburi leads there; it may name several servers",
    )
