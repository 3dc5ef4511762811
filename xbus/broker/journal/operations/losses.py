"""Tells of a journal that went back: of commits that were acknowledged and are gone, until a person acknowledges that.

The broker that notices the loss ends. It writes a row into the journal as it is now. If the database refuses the row,
it writes a file beside its configuration, and the next broker makes the row.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from xbus import model, private_files
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.connection import writing
from xbus.errors import WentBack, XbusError

FILE_NAME = "xbus-losses.json"
"""The name of the file beside the configuration: one line for each loss that no journal has yet."""

SUBJECT, SUBJECT_ID = "journal", "losses"


@dataclass(frozen=True, slots=True)
class Loss:
    """One time that the journal went back.

    Args:
        at: when a broker noticed it.
        writer: that broker: ``front``, ``back`` or ``broker``.
        commits: its commits that are missing.
        known: the position up to which it knew the log.
        found: the position where the log ended.
        acknowledged_at: when a person acknowledged it; None before.
    """

    at: datetime
    writer: str
    commits: int
    known: int
    found: int
    acknowledged_at: datetime | None = None

    @classmethod
    def of(cls, error: WentBack, writer: str, at: datetime) -> "Loss":
        return cls(at, writer, error.commits, error.known, error.found)

    def __str__(self) -> str:
        commits = f"{self.commits:,} commits are lost, " if self.commits else ""
        return f"{commits}its log reached {self.known:,} and ended at {self.found:,}"


def note(url: str, file: Path, loss: Loss) -> Path | None:
    """Note a loss in a transaction of its own; otherwise in the file.

    Returns:
        The file, if the loss is there; None if the journal has it.
    """
    try:
        with writing(url) as connection:
            add(connection, loss)
    except XbusError:
        line = json.dumps({**asdict(loss), "at": loss.at.isoformat(), "acknowledged_at": None})
        with open(file, "a", opener=private_files.opener) as lines:
            lines.write(line + "\n")
        return file
    return None


def add(connection: sa.Connection, loss: Loss) -> None:
    """Add the row of a loss."""
    connection.execute(sa.insert(model.loss).values(asdict(loss)))


def read_file(file: Path) -> list[Loss]:
    """Read the losses that no journal has yet; a line of another form is left out."""
    losses = []
    with suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            with suppress(ValueError, TypeError, KeyError):
                found = json.loads(line)
                losses.append(Loss(**{**found, "at": datetime.fromisoformat(found["at"])}))
    return losses


def take_over(connection: sa.Connection, losses: Sequence[Loss]) -> None:
    """Add the rows of losses that a file has; one whose row was added before stays alone."""
    known = {(loss.at, loss.writer) for loss in read(connection)}
    for loss in losses:
        if (loss.at, loss.writer) not in known:
            add(connection, loss)


def read(connection: sa.Connection) -> list[Loss]:
    """Read all losses, the oldest first."""
    row = model.loss.c
    columns = (row.at, row.writer, row.commits, row.known, row.found, row.acknowledged_at)
    return [Loss(*found) for found in connection.execute(sa.select(*columns).order_by(row.at, row.id))]


def read_open(connection: sa.Connection) -> list[Loss]:
    """Read the losses that no person has acknowledged, the oldest first."""
    return [loss for loss in read(connection) if loss.acknowledged_at is None]


def acknowledge(connection: sa.Connection, reason: str, at: datetime) -> list[Loss]:
    """Note that a person knows of all losses so far; returns those that nobody had acknowledged."""
    found = read_open(connection)
    row = model.loss.c
    connection.execute(sa.update(model.loss).where(row.acknowledged_at.is_(None)).values(acknowledged_at=at))
    for loss in found:
        told = f"{loss.at.isoformat(timespec='seconds')}, {loss.writer}: {loss}"
        remember(connection, at, SUBJECT, SUBJECT_ID, "acknowledged", f"{told}; {reason}")
        note_acts(connection, [act_here(at, "acknowledged", "losses of the journal", before=told, reason=reason)])
    return found
