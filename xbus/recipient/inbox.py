"""The inbox of a recipient: which envelopes it has, noted in its own database by the transaction that keeps them.

After a crash an envelope may come again that was committed just before. Noted here, in the same transaction, it is told
from a new one. For databases that SQLAlchemy speaks to; nothing else of this package needs SQLAlchemy, which comes with
the extra ``inbox``.
"""

import uuid
from datetime import datetime, timedelta
from typing import Protocol

from xbus import extras
from xbus.clock import Clock, SystemClock

extras.require("xbus.recipient.inbox", "inbox", extras.INBOX)

import sqlalchemy as sa  # noqa: E402 - the check says more than Python does

TIDY_HOURS = 1.0
"""The fewest hours between two removals of old ids."""


class Found(Protocol):
    """The part of a result of SQLAlchemy that an inbox needs."""

    def first(self) -> object:
        """Give the first row; None without any."""


class Transaction(Protocol):
    """The part of a connection or a session of SQLAlchemy that an inbox needs."""

    def execute(self, statement: sa.Executable, /) -> Found:
        """Execute a statement in the transaction."""


class Inbox:
    """The ids of the envelopes that a recipient has taken::

        def commit(self, envelope):
            with self.engine.begin() as connection:
                if self.inbox.note(connection, envelope.id):
                    ...  # write what the envelope held

    Args:
        consumer: the owner of the inbox, such as the recipient's login; several may share a table.
        table: the name of the table, which is made by ``create`` or by your own migrations.
        schema: the schema of the table; by default that of the database.
        keep_days: how long to keep an id. The broker must not redeliver an envelope later than this: it redelivers
            within minutes of the recipient's return, so choose more than the recipient may ever be away.
        clock: tells the time; by default that of the machine.
    """

    def __init__(
        self,
        consumer: str,
        *,
        table: str = "xbus_inbox",
        schema: str | None = None,
        keep_days: float = 90.0,
        clock: Clock | None = None,
    ) -> None:
        self.table = sa.Table(
            table,
            sa.MetaData(schema=schema),
            sa.Column("consumer", sa.String(255), primary_key=True, comment="Whose inbox it is."),
            sa.Column("envelope_id", sa.Uuid, primary_key=True, comment="An envelope that it has taken."),
            sa.Column("noted_at", sa.DateTime, nullable=False, index=True, comment="When, in UTC."),
            comment="The envelopes of the bus that were taken, so that none is taken twice.",
        )
        self._consumer = consumer
        self._keep = timedelta(days=keep_days)
        self._clock = clock or SystemClock()
        self._tidied: datetime | None = None

    def create(self, bind: sa.Engine | sa.Connection) -> None:
        """Make the table where it is not there yet."""
        self.table.metadata.create_all(bind)

    def is_new(self, transaction: Transaction, envelope_id: str) -> bool:
        """Check whether an envelope was not noted yet: ask at its first event, and spare yourself the work."""
        inbox = self.table.c
        wanted = sa.select(inbox.envelope_id).where(
            inbox.consumer == self._consumer, inbox.envelope_id == uuid.UUID(envelope_id)
        )
        return transaction.execute(wanted).first() is None

    def note(self, transaction: Transaction, envelope_id: str) -> bool:
        """Note an envelope, in the transaction that writes its content; call it in ``commit``.

        Returns:
            False where it was noted before: then write nothing of it.
        """
        if not self.is_new(transaction, envelope_id):
            return False
        now = self._clock.now().replace(tzinfo=None)
        row = {"consumer": self._consumer, "envelope_id": uuid.UUID(envelope_id), "noted_at": now}
        # Should another process note it at the same time, this fails by the primary key, and with it the transaction.
        transaction.execute(sa.insert(self.table).values(row))
        self._tidy(transaction, now)
        return True

    def _tidy(self, transaction: Transaction, now: datetime) -> None:
        if self._tidied is not None and now - self._tidied < timedelta(hours=TIDY_HOURS):
            return
        self._tidied = now
        inbox = self.table.c
        old = sa.delete(self.table).where(inbox.consumer == self._consumer, inbox.noted_at < now - self._keep)
        transaction.execute(old)
