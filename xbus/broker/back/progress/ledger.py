"""The ledger keeps the cursors and delivery rows in memory, and writes them to the journal a moment later."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from xbus.broker.back.progress import transitions
from xbus.broker.back.progress.consumer_role import ConsumerRole, ConsumerRoles
from xbus.broker.back.recipients import RecipientFailed, RoleEvents
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import Decided, DeliveryMove, DeliveryRow, Failure, IsolatedItem, ProgressUpdate
from xbus.broker.journal.writes.cursor import Cursor
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.deferred import Promise

log = logging.getLogger(__name__)

RESERVE_POSITIONS = 256
"""Unsettled positions of a role up to which hand-overs are reserved, so that few wait for the commit. More leaves as
many in doubt after a crash."""

AHEAD_POSITIONS = RESERVE_POSITIONS // 2
"""A page is written soon where fewer positions are reserved behind the settled ones, or fewer than two calls take. More
has more pages written, and lets fewer hand-overs wait for one."""

WORTH_POSITIONS = RESERVE_POSITIONS // 4
"""A page that reserves so many positions more is written soon where more wait than are reserved."""

MAX_UNWRITTEN = 1_000
"""Changes that may be noted and not yet written. More keeps more in memory, and lets more come again after a crash."""

CURSOR_SECONDS = 0.02
"""Seconds for which cursors that move wait for more of them. More spares commits a row, and lets more envelopes come
again after a crash."""

LAZY_SECONDS = 1.0
"""Seconds after which a write that is in no hurry goes."""


@dataclass(eq=False, slots=True)
class _Page:
    """A page that is being written: the next one is made when its outcome is known.

    Args:
        parts: what is left of it to write, each part in a transaction of its own: usually it is one.
        cursors: all cursors in it.
        noted: how much was noted up to its end.
        over: done when all of it is written; None while nobody waits for it.
    """

    parts: list[ProgressUpdate]
    cursors: Sequence[Cursor]
    noted: int
    over: asyncio.Future[None] | None = None


class DeliveryLedger:
    """Keeps what the back got done and writes it down, many changes in one transaction.

    A consumer that has committed is noted at once and written a moment later: a crash in between makes the envelope
    come again, with the same ids and a ``stop_envelope`` before it.

    Args:
        journal: where it is written down.
        clock: says when it was.
        roles: whose cursors these are, and whose blocked keys: an index of the rows, always as they are noted here.
        events: told of each row that is moved.
        retry_seconds: how long it waits after a write that the database did not take.
        max_unwritten: who notes more than this waits until it is written.
        cursor_seconds: for how long cursors that move wait for more of them.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        roles: ConsumerRoles,
        events: RoleEvents,
        retry_seconds: float,
        max_unwritten: int = MAX_UNWRITTEN,
        cursor_seconds: float = CURSOR_SECONDS,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._events = events
        self._retry_seconds = retry_seconds
        self._max_unwritten = max_unwritten
        self._cursor_seconds = cursor_seconds
        self._roles = roles
        self._dirty: set[int] = set()
        self._moves: list[DeliveryMove] = []
        self._failures: list[Failure] = []
        self._decided: list[Decided] = []
        self._repeated: list[tuple[int, UUID]] = []
        self._watched: set[tuple[int, UUID]] | None = None
        self._noted = 0
        self._written = 0
        self._awaited = 0
        self._page: _Page | None = None
        self._is_kept = False
        """Whether notes are written down as soon as they are made."""
        self._is_due = False
        self._has_reserved = False
        """Whether a hand-over was reserved that no page has yet."""
        self._cursors_wait: asyncio.TimerHandle | None = None
        self._broken: asyncio.Future[None] | None = None
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        """The callbacks that wait until so much is written."""

    def cursor(self, role_id: int) -> Cursor | None:
        """Give the cursor of a role; None for a worker's, and for one that the journal has none of."""
        return self._roles[role_id].cursor

    def adopt(self, cursors: Mapping[int, Cursor]) -> None:
        """Take up the cursors of new roles, and the changed bounds of known ones."""
        for role_id, cursor in cursors.items():
            role = self._roles[role_id]
            known = role.cursor = role.cursor or cursor
            begins_anew = cursor.from_position != known.from_position
            known.from_position, known.until_position = cursor.from_position, cursor.until_position
            if cursor.from_position > known.position + (0 if begins_anew else 1):
                known.begin_at(cursor.from_position, cursor.handed_to)
                role.reserving_to = role.reserved_to = 0
                # It may have been attached, and served, before this process heard of it.
                if (last := max(role.in_flight.positions, default=0)) > known.position:
                    self._hurry(self._reserve(role, last))

    def settle(self, role_id: int, *positions: int) -> None:
        """Note that a role needs nothing more of envelopes at some positions, which grow, in their turn."""
        if positions:
            self.settle_all(self._roles[role_id], positions)

    def settle_all(self, role: ConsumerRole, positions: Sequence[int]) -> None:
        """Note that a role needs nothing more of some envelopes in their turn.

        Args:
            positions: theirs, at least one; they grow.
        """
        cursor = role.cursor
        assert cursor is not None, "what is delivered to a role is owed to it by its cursor"
        first, last = positions[0], positions[-1]
        if last - first < len(positions):
            cursor.settle_range(first, last)
        else:
            for first, last in _ranges(positions):
                cursor.settle_range(first, last)
        self._dirty.add(role.id)
        self._noted += len(positions)
        if last <= role.reserved_to and (reach := cursor.reach(RESERVE_POSITIONS)) > cursor.handed_to:
            # The page that tells what is settled reserves as much anew.
            cursor.handed_to = reach
            ahead = max(AHEAD_POSITIONS, 2 * (positions[-1] - positions[0] + 1))
            if reach + ahead > role.reserving_to + RESERVE_POSITIONS:
                self._renew()
        if self._cursors_wait is None and self._is_kept and self._page is None:
            # Few commits write one cursor: it waits for more of them. What is urgent has been noted as such.
            self._cursors_wait = asyncio.get_running_loop().call_later(self._cursor_seconds, self._write_due, True)

    def pass_over(self, role_id: int, first: int, last: int) -> None:
        """Note that a role is owed nothing from ``first`` to ``last``; there is no hurry to write that down."""
        cursor = self.cursor(role_id)
        if cursor is not None:
            cursor.settle_range(first, last)
            self._dirty.add(role_id)

    def owe(self, role_id: int, position: int) -> None:
        """Note that a lane has come to an envelope that a role is owed: it is owed none of those that were passed."""
        self._pass(role_id, position - 1)
        role = self._roles[role_id]
        role.seen = max(role.seen, position)

    def owe_all(self, role: ConsumerRole, positions: Sequence[int]) -> None:
        """Note that a lane has come to envelopes that a role is owed: it is owed none of those between them."""
        if not positions:
            return
        first, last = positions[0], positions[-1]
        if role.seen < first - 1:
            self._pass(role.id, first - 1)
        if last > role.reserving_to > 0 and self._is_worth_a_page(role):
            self._renew()
        if last - first < len(positions):
            role.seen = max(role.seen, last)
            return
        for position in positions:
            self.owe(role.id, position)

    def pass_to(self, role_id: int, position: int) -> None:
        """Note that a lane has come to ``position`` without a word; there is no hurry to write that down."""
        if self._pass(role_id, position):
            self._dirty.add(role_id)

    def _pass(self, role_id: int, position: int) -> bool:
        """Settle what a lane has passed, since the role was owed an envelope last; whether that was anything."""
        role = self._roles[role_id]
        first = role.seen + 1
        if position < first or role.cursor is None:
            return False
        role.cursor.settle_range(first, position)
        role.seen = position
        return True

    def _note(self, number: int = 1) -> None:
        self._noted += number
        if self._is_kept and self._page is None and not self._is_due:
            # What else this turn of the loop notes is written with it.
            self._is_due = True
            self._journal.turn.at_end(self._write_due)

    def _write_due(self, have_waited: bool = False) -> None:
        """Write what is noted; cursors that move wait for more of them first."""
        self._is_due = False
        if have_waited:
            self._cursors_wait = None
        if not self._is_kept or self._page is not None or not self.has_news:
            return
        is_urgent = self._has_reserved or self._awaited > self._written
        if have_waited or is_urgent or self._moves or self._failures or self._decided:
            self._begin_page()
        elif self._cursors_wait is None:
            self._cursors_wait = asyncio.get_running_loop().call_later(self._cursor_seconds, self._write_due, True)

    def before_its_turn(self, envelope: LogEnvelope, role_id: int, *, attempts: int = 0) -> DeliveryRow:
        """The delivery of an envelope that has no row for a role yet; see ``transitions``."""
        key = self._roles[role_id].keys.key(envelope)
        return transitions.before_its_turn(role_id, envelope, key, attempts=attempts)

    def keyed(self, row: DeliveryRow, envelope: LogEnvelope) -> DeliveryRow:
        """A delivery with the ordering key that its role wants now."""
        return self._roles[row.role_id].keys.keyed(row, envelope)

    def move(self, old: DeliveryRow | None, new: DeliveryRow, isolated: Sequence[IsolatedItem] = ()) -> None:
        """Note what becomes of a delivery that goes its own way, and which items it is to go without. The cursor
        passes it."""
        self._moves.append(DeliveryMove(None if old is None else old.state, new, isolated))
        self._roles[new.role_id].keys.note(new)
        self._events.row_moved.publish(new)
        if self._watched is not None:
            self._watched.add((new.role_id, new.envelope_id))
        self.settle(new.role_id, new.position)
        self._note(0)

    def fail(self, envelope_id: UUID, failure: RecipientFailed) -> None:
        """Note a failed call."""
        self._failures += failure.rows(envelope_id)
        self._note()

    def cure(self, role_id: int, envelope_id: UUID) -> None:
        """Note that a role has committed a repeat in its turn; ``settle`` tells of the turn."""
        self._repeated.append((role_id, envelope_id))

    def watch(self) -> set[tuple[int, UUID]]:
        """Role and envelope of each delivery whose row is moved from now on, until this is called again."""
        self._watched = set()
        return self._watched

    def unwatch(self) -> None:
        """Nobody asks for that any more."""
        self._watched = None

    def decide(self, step: Decided) -> None:
        """Note a step of a decision; what it moved must have been noted just before."""
        self._decided.append(step)
        self._note()

    async def reserve(self, role_ids: Iterable[int], position: int) -> None:
        """Have it durable that an envelope may be handed to these roles, before it is."""
        await self._written_up_to(
            max([self._reserve(self._roles[role_id], position) for role_id in role_ids], default=0)
        )

    def is_reserved(self, role: ConsumerRole, position: int, go_on: Callable[[], object]) -> bool:
        """Check whether it is durable that an envelope may be handed to a role; more wait than are reserved.

        Args:
            go_on: called when it is durable, if it is not yet.
        """
        reserved = self._reserve(role, position)
        if self._written >= reserved:
            # What waits behind it goes as soon as it is answered.
            if self._is_worth_a_page(role):
                self._hurry(self._noted)
            elif self._page is not None and role.reserving_to > role.reserved_to:
                self._hurry(self._page.noted)
            return True
        self._hurry(reserved)
        self._waiting.append((reserved, go_on))
        return False

    def _reserve(self, role: ConsumerRole, position: int) -> int:
        """Reserve a hand-over; give the number of notes that make it durable."""
        cursor = role.cursor
        assert cursor is not None, "what is delivered to a role is owed to it by its cursor"
        if position <= role.reserved_to:
            return 0
        if self._page is not None and position <= role.reserving_to:
            return self._page.noted
        cursor.handed_to = max(cursor.handed_to, cursor.reach(RESERVE_POSITIONS), position)
        self._dirty.add(role.id)
        self._note()
        return self._noted

    def _is_worth_a_page(self, role: ConsumerRole) -> bool:
        return role.cursor is not None and role.cursor.handed_to >= role.reserving_to + WORTH_POSITIONS

    def _renew(self) -> None:
        """Have what is reserved anew go with what is sealed next."""
        if not self._has_reserved:
            self._has_reserved = True
            self._note(0)

    @property
    def has_room(self) -> bool:
        """Check whether more may be noted before what is noted is written."""
        return self._noted - self._written <= self._max_unwritten

    async def room(self) -> None:
        """Wait while too much is noted and not written."""
        if not self.has_room:
            await self.written()

    async def written(self) -> None:
        """Wait until all that is noted now is durable."""
        await self._written_up_to(self._noted)

    async def _written_up_to(self, noted: int) -> None:
        if self._written >= noted:
            return
        self._hurry(noted)
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((noted, partial(_finish, written)))
        await written

    def _hurry(self, noted: int) -> None:
        """Have it written without delay what was noted up to here, unless it is written."""
        if self._written < noted:
            self._awaited = max(self._awaited, noted)
            self._note(0)
            self._journal.hurry()

    async def keep(self) -> None:
        """For ever: write down what was noted, as soon as it is and with whatever came meanwhile.

        Raises:
            BaseException: what the journal's writer died of.
        """
        self._is_kept = True
        self._broken = asyncio.get_running_loop().create_future()
        try:
            while not self._broken.done():
                self._write_due()
                # What is in no hurry wakes nobody.
                await asyncio.wait([self._broken], timeout=LAZY_SECONDS)
            self._broken.result()
        finally:
            self._is_kept = False
            self._broken = None

    @property
    def has_news(self) -> bool:
        """Check whether anything is noted that is not being written yet."""
        return bool(self._dirty or self._moves or self._failures or self._decided)

    async def write(self) -> None:
        """Write down all that is noted now; an unreachable database only delays it."""
        self._awaited = self._noted
        self._journal.hurry()
        while self._page is not None:
            await self._over(self._page)
        await self._over(self._begin_page())

    async def _over(self, page: _Page) -> None:
        if page.over is None:
            page.over = asyncio.get_running_loop().create_future()
        await asyncio.shield(page.over)

    def _begin_page(self) -> _Page:
        cursors: list[Cursor] = []
        for role_id in self._dirty:
            role = self._roles[role_id]
            if role.cursor is not None:
                role.reserving_to = role.cursor.handed_to
                cursors.append(role.cursor.copied())
        self._dirty, self._has_reserved = set(), False
        if self._moves or self._failures or self._decided or self._repeated:
            noted = (self._moves, self._failures, self._decided, self._repeated)
            progress = ProgressUpdate(self._clock.now(), cursors, *noted)
            self._moves, self._failures, self._decided, self._repeated = [], [], [], []
        else:
            progress = ProgressUpdate(self._clock.now(), cursors)
        self._page = page = _Page([progress], cursors, self._noted)
        self._submit(page)
        return page

    def _submit(self, page: _Page) -> None:
        part = page.parts[0]
        outcome: Promise[None] = Promise()
        outcome.add_done_callback(partial(self._take_outcome, page))
        # Somebody waits for it, or would read its rows; cursors alone go with a commit that comes.
        is_urgent = self._awaited > self._written or bool(part.deliveries or part.failures or part.decided)
        self._journal.submit(part, outcome, promises=is_urgent)

    def _take_outcome(self, page: _Page, outcome: Promise[None]) -> None:
        if (error := outcome.error) is None:
            del page.parts[0]
        elif isinstance(error, JournalUnavailable):
            log.warning("progress not written: %s", error, extra={"action": "progress_unwritten"})
            asyncio.get_running_loop().call_later(self._retry_seconds, self._submit, page)
            return
        elif isinstance(error, JournalError):
            page.parts[:1] = _singly(page.parts[0], error)
        else:
            # The journal's writer died of it, which ends the broker.
            for future in (page.over, self._broken):
                if future is not None and not future.done():
                    future.set_exception(error)
            return
        if page.parts:
            self._submit(page)
            return
        self._page = None
        self._written = page.noted
        for cursor in page.cursors:
            role = self._roles[cursor.role_id]
            role.reserved_to = role.reserving_to
        if page.over is not None and not page.over.done():
            page.over.set_result(None)
        if self._noted > page.noted:
            self._write_due()
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waiting += [each for each in waiting if each[0] > page.noted]
            for noted, go_on in waiting:
                if noted <= page.noted:
                    go_on()

    def return_reserved(self) -> None:
        """Give back what was reserved and neither settled nor handed over, so that a clean stop leaves nothing in
        doubt."""
        for role in self._roles.values():
            if role.cursor is None:
                continue
            highest_settled = role.cursor.position + role.cursor.above.bit_length()
            handed_to = max(highest_settled, *role.in_flight.positions, 0)
            role.reserving_to = role.reserved_to = 0
            if handed_to < role.cursor.handed_to:
                role.cursor.handed_to = handed_to
                self._dirty.add(role.id)


def _singly(progress: ProgressUpdate, error: JournalError) -> list[ProgressUpdate]:
    """A part that was refused, in pieces, the cursors last: an operator has changed a delivery meanwhile, whose row is
    then as they want it, and all else is to be written."""
    nothing = ProgressUpdate(progress.at)
    pieces = [
        *(replace(nothing, deliveries=[move]) for move in progress.deliveries),
        *(replace(nothing, failures=[failure]) for failure in progress.failures),
        *(replace(nothing, decided=[step]) for step in progress.decided),
        *(replace(nothing, repeated=[repeat]) for repeat in progress.repeated),
        *(replace(nothing, cursors=[cursor]) for cursor in progress.cursors),
    ]
    if len(pieces) > 1:
        return pieces
    log.warning("progress refused: %s", error, extra={"action": "progress_refused"})
    return []


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _ranges(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Join positions that follow each other: most of a bundle do, and a step for each would cost more."""
    if not positions:
        return
    if positions[-1] - positions[0] == len(positions) - 1:
        yield positions[0], positions[-1]
        return
    first = last = positions[0]
    for position in positions[1:]:
        if position != last + 1:
            yield first, last
            first = position
        last = position
    yield first, last
