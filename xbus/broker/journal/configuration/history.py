"""Every change of the configuration is a new version; the history describes it, and the audit has who made it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, select, update

from xbus.broker.journal.audit import Act, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.errors import ConfigurationError
from xbus.model import configuration


@contextmanager
def new_version(
    connection: Connection, move: str, reason: str, at: datetime, *, acts: Sequence[Act], expected: int | None = None
) -> Iterator[None]:
    """Count the version up once for all that is changed within, so that a running broker notices; note the change.

    Args:
        connection: with the transaction of the change itself.
        move: the change, in a word.
        reason: what exactly, in a sentence.
        at: the moment of the change.
        acts: the same for the audit, one for each thing that is changed.
        expected: the version that the change was worked out for; None where it fits any.

    Raises:
        ConfigurationError: the present version is another one than ``expected``.
    """
    fits = configuration.c.version == (configuration.c.version if expected is None else expected)
    counted = connection.execute(
        update(configuration).where(fits).values(version=configuration.c.version + 1, changing=True)
    )
    if counted.rowcount != 1:
        raise ConfigurationError(
            "someone else has changed the configuration in the meantime",
            "look at the changes again",
            code="stale_plan",
        )
    yield
    connection.execute(update(configuration).values(changing=False))
    version = connection.execute(select(configuration.c.version)).scalar_one()
    remember(connection, at, "configuration", str(version), move, reason)
    note_acts(connection, acts)
