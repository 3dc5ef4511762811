"""Tells of a journal that went back: of commits that were acknowledged and are gone, until a person acknowledges that.

The broker that notices the loss ends. It writes a row into the journal as it is now. If the database refuses the row,
it writes a file beside its configuration, and the next broker makes the row.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from xbus import model, private_files
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.connection import writing
from xbus.errors import WentBack, XbusError

log = logging.getLogger(__name__)

FILE_NAME = "xbus-losses.json"
"""The name of the file: it has one line for each loss that no journal has yet."""

TOLD_BEFORE = timedelta(minutes=1)
"""Two brokers notice one loss within this time."""

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


def files_of(folder: Path) -> list[Path]:
    """Give the files of losses: beside the configuration, and in the working directory if that may not be written."""
    return list(dict.fromkeys((folder.absolute() / FILE_NAME, Path.cwd() / FILE_NAME)))


def note(url: str, files: Sequence[Path], loss: Loss) -> None:
    """Note a loss in a transaction of its own; otherwise in the first file that can be written."""
    try:
        with writing(url) as connection:
            add(connection, loss)
    except XbusError as error:
        log.error("the journal takes no row of its loss: %s", error, extra={"action": "loss_not_noted"})
        line = json.dumps({**asdict(loss), "at": loss.at.isoformat(), "acknowledged_at": None})
        for file in files:
            with suppress(OSError):
                with open(file, "a", opener=private_files.opener) as lines:
                    lines.write(line + "\n")
                return


def add(connection: sa.Connection, loss: Loss) -> None:
    """Add the row of a loss."""
    connection.execute(sa.insert(model.loss).values(asdict(loss)))


def add_unless_told(connection: sa.Connection, loss: Loss) -> None:
    """Add the row of a loss, unless another broker has told it just before."""
    if all(abs(loss.at - told.at) > TOLD_BEFORE for told in read(connection)):
        add(connection, loss)


def read_file(file: Path) -> list[Loss]:
    """Read the losses that no journal has yet; a line of another form is left out."""
    losses = []
    with suppress(FileNotFoundError):
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                found = json.loads(line)
                moment, writer = datetime.fromisoformat(found["at"]), str(found["writer"])
                losses.append(Loss(**{**found, "at": moment, "writer": writer}))
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
