"""The audit: who did what to the bus, when and from where, in a chain of hashes.

A program notes an act in the transaction of the act itself, so that neither exists without the other. That takes no
lock. The broker, and each ``xbus audit`` command, hangs the new rows into the chain a moment later, one writer at a
time. Every package of the journal above ``database`` imports it, and so do front, back and commands.
"""

import hashlib
import json
import os
import pwd
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.errors import Refused

# -- acts --------------------------------------------------------------------------------------------------------------
# An act of a person or a program, as the audit keeps it, and its hash; no SQL.

P = ParamSpec("P")
T = TypeVar("T")

NO_HASH = bytes(32)
"""The hash before the first row."""

MOST_LETTERS = 255
"""Letters of a name that are kept: strangers may send longer ones."""


@dataclass(frozen=True, slots=True)
class Act:
    """An act of a person or a program.

    Args:
        at: when.
        who: a login, or the operating-system user of a command.
        origin: the address of the peer, or the host of the command.
        action: what was done, in a word.
        object: to what, by its kind and its name or id.
        before: how it was, as far as that changed; never a secret.
        after: how it is since then; never a secret.
        reason: why, as the person said.
    """

    at: datetime
    who: str
    origin: str
    action: str
    object: str
    before: str = ""
    after: str = ""
    reason: str = ""

    def hashed(self, number: int, before: bytes) -> bytes:
        """Compute the hash that it has in the chain: SHA-256 over the hash before it, and over a list in JSON.

        The list has its number, its moment in UTC to the microsecond, and its texts in the order of the arguments. JSON
        is written without spaces and in ASCII.

        Args:
            number: its place in the chain.
            before: the hash of the row before it.
        """
        moment = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        texts = (self.who, self.origin, self.action, self.object, self.before, self.after, self.reason)
        content = json.dumps([number, moment, *texts], separators=(",", ":"))
        return hashlib.sha256(before + content.encode("ascii")).digest()


def act_here(
    at: datetime, action: str, object: str, *, who: str = "", before: str = "", after: str = "", reason: str = ""
) -> Act:
    """Make an act of the person of :func:`acting_as`; otherwise of who runs this process, on this host.

    Args:
        who: who did it on this host, where the caller knows better.
    """
    actor = None if who else _actor.get()
    by, origin = actor or (who or person(), socket.gethostname())
    return Act(at, by, origin, action, object, before, after, reason)


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """A person's decision to repair something: the person, the reason, and the moment.

    Args:
        reason: may be empty.
    """

    who: str
    reason: str
    at: datetime

    @property
    def told(self) -> str:
        """As it is kept: ``ada: the name was missing``."""
        return f"{self.who}: {self.reason}" if self.reason else self.who

    def act(self, action: str, thing: str, *, before: str = "", after: str = "") -> Act:
        """Make the act of this decision for the audit."""
        return act_here(self.at, action, thing, before=before, after=after, reason=self.reason)


_actor: ContextVar[tuple[str, str] | None] = ContextVar(
    "the person for whom a program acts, and the origin", default=None
)


@contextmanager
def acting_as(who: str, origin: str) -> Iterator[None]:
    """Act for a person of whom the program made sure: acts and decisions within bear that name.

    It holds for this task or thread, and for a thread that runs in a copy of its context, as ``asyncio.to_thread``
    does; a bare thread pool forgets it.

    Args:
        who: the person's name.
        origin: the address from which the person asks.
    """
    token = _actor.set((who, origin))
    try:
        yield
    finally:
        _actor.reset(token)


def done_by(who: str, origin: str, errand: Callable[P, T]) -> Callable[P, T]:
    """Make an errand that acts for somebody, wherever it is run; see :func:`acting_as`."""

    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        with acting_as(who, origin):
            return errand(*args, **kwargs)

    return done


def acting_person() -> str | None:
    """Name the person of :func:`acting_as`; None outside of it."""
    actor = _actor.get()
    return None if actor is None else actor[0]


def person() -> str:
    """Name the person at the keyboard: the operating-system user, and who became this user by sudo."""
    user_id = os.getuid()
    try:
        user = pwd.getpwuid(user_id).pw_name
    except KeyError:
        # A user of a container has an id at least.
        user = f"user {user_id}"
    by_sudo = os.environ.get("SUDO_USER", user)
    return user if by_sudo == user else f"{by_sudo} as {user}"


# -- noting ------------------------------------------------------------------------------------------------------------
# Notes acts in the transaction in which they are done.

_INSERT = sa.insert(model.audit)


def note_acts(connection: sa.Connection, acts: Iterable[Act]) -> None:
    """Note acts in the caller's transaction. That locks nothing, and keeps nobody waiting."""
    rows = [
        {
            "at": act.at,
            "who": _storable(act.who)[:MOST_LETTERS],
            "origin": _storable(act.origin)[:MOST_LETTERS],
            "action": act.action,
            "object": _storable(act.object),
            "before": _storable(act.before),
            "after": _storable(act.after),
            "reason": _storable(act.reason),
        }
        for act in acts
    ]
    if rows:
        connection.execute(_INSERT, rows)


def _storable(text: str) -> str:
    """Write what a database may refuse, or a terminal obey, as escapes: a stranger may have written it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


# -- reading -----------------------------------------------------------------------------------------------------------
# Reads the audit.

PAGE = 1000
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An act, and its place in the chain; None for both while it waits for the chain."""

    id: int
    act: Act
    number: int | None
    hash: bytes | None


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """The rows that somebody asks for; None for all.

    Args:
        since: done at this moment or later.
        who: by exactly this login or user.
        action: exactly this one.
        object: a part of the object's text.
        before_number: below this number in the chain.
    """

    since: datetime | None = None
    who: str | None = None
    action: str | None = None
    object: str | None = None
    before_number: int | None = None


def list_acts(connection: sa.Connection, filters: AuditFilters, limit: int) -> list[AuditRow]:
    """List what was done, the newest first."""
    row = model.audit.c
    wanted: list[sa.ColumnElement[bool]] = []
    if filters.since is not None:
        wanted.append(row.at >= filters.since)
    if filters.who is not None:
        wanted.append(row.who == filters.who)
    if filters.action is not None:
        wanted.append(row.action == filters.action)
    if filters.object is not None:
        wanted.append(row.object.contains(filters.object, autoescape=True))
    # One part after the other: an index then finds each in its order.
    in_chain = sa.select(model.audit).order_by(row.number.desc())
    if filters.before_number is not None:
        parts = [in_chain.where(row.number < filters.before_number)]
    else:
        new = sa.select(model.audit).where(row.number.is_(None)).order_by(row.id.desc())
        parts = [new, in_chain.where(row.number.is_not(None))]
    found: list[AuditRow] = []
    for part in parts:
        rows = connection.execute(part.where(*wanted).limit(limit - len(found)))
        found += [as_row(each._mapping) for each in rows]
    return found


def read_chain(connection: sa.Connection, after: int, until: int | None = None) -> Iterator[AuditRow]:
    """Read the rows of the chain behind a number in their order, a page at a time.

    Args:
        until: the last number; None for the end.
    """
    number = model.audit.c.number
    last = number.is_not(None) if until is None else number <= until
    while True:
        page = sa.select(model.audit).where(number > after, last).order_by(number).limit(PAGE)
        found = [as_row(row._mapping) for row in connection.execute(page)]
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1].number or 0


def as_row(row: Mapping[Any, Any]) -> AuditRow:
    """Make an audit row of one of the database."""
    return AuditRow(row["id"], as_act(row), row["number"], None if row["hash"] is None else bytes(row["hash"]))


def as_act(row: Mapping[Any, Any]) -> Act:
    """Read the act of a row of the database."""
    names = ("at", "who", "origin", "action", "object", "before", "after", "reason")
    return Act(*(row[name] for name in names))


# -- chain -------------------------------------------------------------------------------------------------------------
# Hangs new rows of the audit into its chain. A lock on the one row of the head keeps two writers from forking it.

MOST_AT_ONCE = 1000
"""Rows of one transaction. More would keep other writers of SQLite waiting for longer."""

_NEW = sa.select(model.audit).where(model.audit.c.number.is_(None)).order_by(model.audit.c.id)
_HANG = (
    sa.update(model.audit)
    .where(model.audit.c.id == bindparam("of_id"))
    .values(number=bindparam("new_number"), hash=bindparam("new_hash"))
)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """An end of the chain: a row's number and its hash.

    Example:
        >>> str(ChainHead(3, bytes(32)))[:8]
        '3:000000'
    """

    number: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


def has_new(connection: sa.Connection) -> bool:
    """Check whether rows wait for the chain."""
    return connection.execute(_NEW.limit(1)).first() is not None


def hang_new(connection: sa.Connection, *, wait: bool) -> int:
    """Hang up to ``MOST_AT_ONCE`` new rows into the chain, in the caller's transaction.

    Args:
        wait: whether to wait for another program that is at it; else nothing is done meanwhile.

    Returns:
        How many rows it was.
    """
    head = lock_head(connection, wait=wait)
    if head is None:
        return 0
    hung: list[dict[str, Any]] = []
    for row in connection.execute(_NEW.limit(MOST_AT_ONCE)):
        number = head.number + 1
        head = ChainHead(number, as_act(row._mapping).hashed(number, head.hash))
        hung.append({"of_id": row.id, "new_number": number, "new_hash": head.hash})
    if hung:
        connection.execute(_HANG, hung)
        connection.execute(sa.update(model.audit_head).values(number=head.number, hash=head.hash))
    return len(hung)


def hang_all(connection: sa.Connection) -> ChainHead:
    """Hang all new rows into the chain; gives its end."""
    while hang_new(connection, wait=True):
        pass
    return read_head(connection)


def lock_head(connection: sa.Connection, *, wait: bool = True) -> ChainHead | None:
    """Lock the head until the end of the transaction; None where another program has it and ``wait`` is false."""
    # On SQLite there is one writer at a time anyway.
    head = model.audit_head.c
    locked = sa.select(head.number, head.hash).with_for_update(skip_locked=not wait)
    row = connection.execute(locked).one_or_none()
    return None if row is None else ChainHead(row.number, bytes(row.hash))


def read_head(connection: sa.Connection) -> ChainHead:
    """Read the end of the chain."""
    row = connection.execute(sa.select(model.audit_head.c.number, model.audit_head.c.hash)).one()
    return ChainHead(row.number, bytes(row.hash))


# -- verifying ---------------------------------------------------------------------------------------------------------
# Verifies the audit's chain: finds rows that were changed, removed, or put elsewhere.

CUT = "audit_cut"
"""The action of who removed old rows."""

TOLD_ROWS = 100
"""After so many rows a walk tells how far it is."""

MOST_FAULTS = 20
"""Faults that are reported; a chain that was tampered with may have one in each row."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a look at the chain.

    Args:
        rows: how many rows it has.
        cut: the row behind which it begins.
        head: its last row.
        faults: sentences, each naming a row; empty where all is well.
    """

    rows: int
    cut: ChainHead
    head: ChainHead
    faults: tuple[str, ...]


def chain_length(connection: sa.Connection) -> int:
    """Count the rows that the chain should have."""
    ends = connection.execute(sa.select(model.audit_head)).one()
    return int(ends.number - ends.cut_number)


def verify(
    connection: sa.Connection, noted: ChainHead | None = None, tell: Callable[[int], None] = lambda rows: None
) -> Verification:
    """Compute all hashes of the chain anew, and compare.

    Args:
        noted: an end of the chain that somebody wrote down before; it must still be in it.
        tell: gets the number of rows that were verified since it was called last.
    """
    ends = connection.execute(sa.select(model.audit_head)).one()
    cut = ChainHead(ends.cut_number, bytes(ends.cut_hash))
    walk = _Walk(cut, noted)
    # 1. The head is read. 2. A broker hangs further rows in. 3. They must not count as rows beyond the head.
    for row in read_chain(connection, cut.number, ends.number):
        walk.take(row)
        if walk.rows % TOLD_ROWS == 0:
            tell(TOLD_ROWS)
    faults = [*walk.faults]
    head = ChainHead(ends.number, bytes(ends.hash))
    if walk.last != head:
        faults.append(f"the head names row {head}, and the last row is {walk.last}: rows at the end are missing")
    if cut != ChainHead(0, NO_HASH) and str(cut) != walk.cut_told:
        faults.append(f"rows up to {cut.number} are missing, and no xbus audit cut removed them")
    if noted is not None and noted.number > cut.number and not walk.has_noted:
        faults.append(f"row {noted.number} with the noted hash is missing: the end was removed or written anew")
    return Verification(walk.rows, cut, walk.last, tuple(faults[:MOST_FAULTS]))


def verify_part(connection: sa.Connection, until: int) -> tuple[str, ...]:
    """Find the faults of the chain up to a row."""
    ends = connection.execute(sa.select(model.audit_head)).one()
    walk = _Walk(ChainHead(ends.cut_number, bytes(ends.cut_hash)), None)
    for row in read_chain(connection, ends.cut_number, until):
        walk.take(row)
    return tuple(walk.faults)


class _Walk:
    """Goes along the chain, and compares each row with the one before it."""

    def __init__(self, start: ChainHead, noted: ChainHead | None) -> None:
        self.last = start
        self.rows = 0
        self.faults: list[str] = []
        self.has_noted = noted is not None and noted == start
        self.cut_told = ""
        self._noted = noted

    def take(self, row: AuditRow) -> None:
        number = row.number or 0
        if len(self.faults) < MOST_FAULTS:
            self.faults.extend(self._faults(row, number))
        self.last = ChainHead(number, row.hash or NO_HASH)
        self.rows += 1
        self.has_noted = self.has_noted or self.last == self._noted
        if row.act.action == CUT:
            self.cut_told = row.act.after

    def _faults(self, row: AuditRow, number: int) -> Iterator[str]:
        if number != self.last.number + 1:
            first, last = self.last.number + 1, number - 1
            yield f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"
        elif row.act.hashed(number, self.last.hash) != row.hash:
            yield f"row {number} was changed: its hash does not follow from its values and the row before it"


# -- cutting -----------------------------------------------------------------------------------------------------------
# Removes old rows of the audit; the chain then begins with the hash of the last of them.


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows that were removed: how many, and the last of them."""

    rows: int
    last: ChainHead


def count_older(connection: sa.Connection, before: datetime) -> int:
    """Count the rows that a cut would remove."""
    last = _last_older(connection, before)
    cut: int = connection.execute(sa.select(model.audit_head.c.cut_number)).scalar_one()
    return 0 if last is None else last.number - cut


def cut_older(connection: sa.Connection, before: datetime, reason: str, at: datetime) -> Cut | None:
    """Remove all rows in front of the first one that was written at a moment or later, and note it.

    Returns:
        The removed rows; None if no row is so old.

    Raises:
        Refused: a row that would go was changed (``audit_broken``).
    """
    hang_all(connection)
    last = _last_older(connection, before)
    if last is None:
        return None
    if faults := verify_part(connection, last.number):
        raise Refused(
            f"the audit was tampered with: {faults[0]}",
            "keep it as it is, and see xbus audit verify",
            code="audit_broken",
        )
    rows = last.number - connection.execute(sa.select(model.audit_head.c.cut_number)).scalar_one()
    connection.execute(sa.update(model.audit_head).values(cut_number=last.number, cut_hash=last.hash))
    connection.execute(sa.delete(model.audit).where(model.audit.c.number <= last.number))
    note_acts(connection, [act_here(at, CUT, f"audit rows up to {last.number}", after=str(last), reason=reason)])
    hang_all(connection)
    return Cut(rows, last)


def _last_older(connection: sa.Connection, before: datetime) -> ChainHead | None:
    """Find the last row of the chain in front of the first one that is not older."""
    row = model.audit.c
    kept: int | None = connection.execute(sa.select(sa.func.min(row.number)).where(row.at >= before)).scalar_one()
    older = sa.select(row.number, row.hash).where(row.number.is_not(None)).order_by(row.number.desc()).limit(1)
    if kept is not None:
        older = older.where(row.number < kept)
    found = connection.execute(older).one_or_none()
    return None if found is None else ChainHead(found.number, bytes(found.hash))
