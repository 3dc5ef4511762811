"""Pausing and resuming: nothing new begins with a role, service, event type or emitter, and nothing is lost.

The bus keeps the envelopes that a paused role is owed. Detaching, in ``detaching``, is the other way to leave a role
without envelopes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, act_here
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.log.catalog import PAUSED_TABLES, name_column, read_pauses
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import Refused

OVERVIEWS = {
    PauseKind.ROLE: "xbus recipient list shows the roles",
    PauseKind.SERVICE: "xbus recipient list shows the services",
    PauseKind.TYPE: "xbus type list shows the event types",
    PauseKind.EMITTER: "xbus export shows the emitters",
    PauseKind.BOT: "xbus bot list shows the bots",
}


def pause(
    connection: sa.Connection, kind: PauseKind, name: str, decision: RepairDecision, until: datetime | None
) -> PauseEntry:
    """Have nothing new begin; one that is paused already gets the new reason and end.

    Args:
        until: when the pause ends by itself; None for when somebody resumes it.

    Raises:
        Refused: nothing of that kind has this name (``unknown_login``, ``unknown_name``).
    """
    subject_id = find_subject(connection, kind, name)
    row = {"reason": decision.reason, "paused_by": decision.who, "since": decision.at, "until": until}
    found = PauseEntry(kind, subject_id, name, decision.reason, decision.who, decision.at, until)
    told = decision.told if until is None else f"{decision.told} (until {until:%Y-%m-%d %H:%M:%SZ})"
    with _noted(connection, found, "paused", told, decision):
        connection.execute(sa.delete(model.pause).where(_is(kind, subject_id)))
        connection.execute(sa.insert(model.pause).values(kind=kind.value, subject_id=subject_id, **row))
    return found


def resume(connection: sa.Connection, kind: PauseKind, name: str, decision: RepairDecision) -> None:
    """End a pause.

    Raises:
        Refused: nothing of that kind has this name, or it is not paused (``not_paused``).
    """
    found = find_pause(connection, kind, name)
    with _noted(connection, found, "resumed", decision.told, decision):
        connection.execute(sa.delete(model.pause).where(_is(kind, found.subject_id)))


def find_pause(connection: sa.Connection, kind: PauseKind, name: str) -> PauseEntry:
    """Find the pause of what is in use under a name.

    Raises:
        Refused: nothing of that kind has this name, or it is not paused (``not_paused``).
    """
    found = read_pauses(connection).get((kind, find_subject(connection, kind, name)))
    if found is None:
        raise Refused(
            f'the {kind.told} "{name}" is not paused', "xbus health shows all that is paused", code="not_paused"
        )
    return found


def find_subject(connection: sa.Connection, kind: PauseKind, name: str) -> int:
    """Find the id of what is in use under a name.

    Raises:
        Refused: nothing of that kind has this name.
    """
    table = PAUSED_TABLES[kind]
    wanted = sa.select(table.c.id).where(name_column(table) == name, table.c.removed_at.is_(None))
    found: int | None = connection.execute(wanted).scalar_one_or_none()
    if found is None:
        code = "unknown_login" if "login" in table.c else "unknown_name"
        raise Refused(f'there is no {kind.told} "{name}"', OVERVIEWS[kind], code=code)
    return found


@contextmanager
def _noted(
    connection: sa.Connection, found: PauseEntry, move: str, told: str, decision: RepairDecision
) -> Iterator[None]:
    until = "" if found.until is None or move != "paused" else f"until {found.until:%Y-%m-%d %H:%M:%SZ}"
    thing = f'{PAUSED_TABLES[found.kind].name} "{found.name}"'
    act = act_here(decision.at, move, thing, after=until, reason=decision.reason)
    with new_version(connection, move, f"{found.kind.told} {found.name}: {told}", decision.at, acts=[act]):
        yield
    remember(connection, decision.at, found.kind.value, found.name, move, told)


def _is(kind: PauseKind, subject_id: int) -> sa.ColumnElement[bool]:
    return (model.pause.c.kind == kind.value) & (model.pause.c.subject_id == subject_id)
