"""A consumer role, as one object: its state, cursor, lane, pace, breaker, blocked keys, and what is in flight to it."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.progress.in_flight import InFlight
from xbus.broker.back.progress.keys_in_hand import KeysInHand
from xbus.broker.back.progress.lane import Lane
from xbus.broker.back.progress.pace import Pace
from xbus.broker.back.recipients import CircuitBreaker, CircuitBreakers, ServedRole
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import CONSUMER_MOVES, ConsumerState, check_move


class Reservations:
    """The positions up to which hand-overs are reserved, each durable from some note of the ledger on; pure."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()

    def add(self, position: int, noted: int) -> None:
        """Note that hand-overs up to ``position`` are durable as soon as the ledger has written so many notes."""
        self._steps.append((position, noted))

    def noted_for(self, position: int) -> int:
        """Give the number of notes that make a hand-over at ``position`` durable; those below it are not asked again,
        or get a number that is too high, but never too low."""
        while self._steps and self._steps[0][0] < position:
            self._steps.popleft()
        return self._steps[0][1] if self._steps else 0

    def reached(self, position: int) -> int:
        """Give the position up to which hand-overs are durable as soon as that at ``position`` is, asked just now."""
        return self._steps[0][0] if self._steps else position


class ConsumerRole:
    """One consumer role, whether its recipient is there or not.

    Args:
        role_id: which one.
        breaker: open while one envelope after the other fails at it.
        behind_after: see ``Pace``, in seconds.
    """

    def __init__(self, role_id: int, breaker: CircuitBreaker, behind_after: float) -> None:
        self.id = role_id
        self.breaker = breaker
        self.state = ConsumerState.ABSENT
        """How it is served; only the methods below move it, by the table in ``xbus.states``."""
        self.pace = Pace(behind_after)
        """For how long it kept others waiting lately."""
        self.lane: Lane | None = None
        """The lane that reads for it; None while none does."""
        self.cursor: Cursor | None = None
        """Its progress in the log; None if the journal has no cursor of it yet."""
        self.keys = BlockedKeys(role_id)
        """Which ordering keys wait for an earlier envelope."""
        self.keys_in_hand = KeysInHand()
        """Of which ordering keys its instances have an envelope just now."""
        self.served: ServedRole | None = None
        """What serves it now, or did so last."""
        self.in_flight = InFlight()
        """What runs are bringing to it."""
        self._tasks: dict[asyncio.Task[None], ServedRole | None] = {}
        """The tasks that bring it anything just now, each with what served it when they began."""
        self.reservations = Reservations()
        """How far hand-overs to it are reserved."""
        self.reserved_to = 0
        """Hand-overs up to this position need not be asked for: they are durable, and the next ones are reserved."""
        self.seen = 0
        """The highest position that a lane has passed for it: what is unsettled up to here is owed."""

    def bring_by(self, task: "asyncio.Task[None]") -> None:
        """Note a task that brings something to the role as it is served now, until it is done."""
        self._tasks[task] = self.served
        task.add_done_callback(self._tasks.pop)

    def predecessors(self, recipient: ServedRole) -> list[asyncio.Task[None]]:
        """List the tasks of which it is not known yet what has become of what they brought when the role was served
        before."""
        return [task for task, whom in self._tasks.items() if whom is not recipient]

    async def predecessors_over(self, recipient: ServedRole) -> None:
        """Wait until it is known what has become of what was brought when the role was served before."""
        if before := self.predecessors(recipient):
            await asyncio.wait(before)

    def settled_of(self, positions: Sequence[int]) -> Collection[int]:
        """Give those of some positions, which grow, at which it needs nothing more in its turn."""
        return positions if self.cursor is None else self.cursor.settled_of(positions)

    def arrive(self) -> None:
        """Serve it by what has come; a role whose breaker is open gets nothing in its turn yet."""
        self._move(ConsumerState.TRIPPED if self.breaker.is_tripped else ConsumerState.READING)

    def fall_behind(self) -> None:
        """Let it read at its own pace, as it kept others waiting."""
        self._move(ConsumerState.SLOW)

    def catch_up(self) -> None:
        """Let it read with others again, as its lane has reached the head of the log."""
        self._move(ConsumerState.READING)

    def trip(self) -> None:
        """Give it nothing more in its turn, as its breaker has tripped."""
        self._move(ConsumerState.TRIPPED)

    def recover(self) -> None:
        """Let it read again, as its breaker has closed."""
        self._move(ConsumerState.READING)

    def pause(self) -> None:
        """Begin nothing more with its recipient until it is resumed."""
        self._move(ConsumerState.PAUSED)

    def leave(self) -> None:
        """Begin nothing more with its recipients."""
        self._move(ConsumerState.LEAVING)

    def go(self) -> None:
        """Let another recipient come, as the last one is gone."""
        self._move(ConsumerState.ABSENT)

    def _move(self, new: ConsumerState) -> None:
        check_move(CONSUMER_MOVES, self.state, new)
        self.state = new


class ConsumerRoles(dict[int, ConsumerRole]):
    """All consumer roles that anything was asked about, by their ids; one that is not known yet begins absent.

    Args:
        breakers: those of all roles, as workers have them too.
        behind_after: see ``Pace``, in seconds.
    """

    def __init__(self, breakers: CircuitBreakers, behind_after: float) -> None:
        super().__init__()
        self._breakers = breakers
        self._behind_after = behind_after

    def __missing__(self, role_id: int) -> ConsumerRole:
        role = self[role_id] = ConsumerRole(role_id, self._breakers[role_id], self._behind_after)
        return role

    # -- subscribers of role events: a worker has no state here ------------------------------------------------------

    def arrived(self, recipient: ServedRole) -> None:
        """Serve a consumer that has come."""
        if not recipient.role.worker:
            role = self[recipient.role.id]
            role.served = recipient
            role.arrive()

    def paused(self, recipient: ServedRole) -> None:
        """Begin nothing more with a consumer until it is resumed."""
        if not recipient.role.worker:
            self[recipient.role.id].pause()

    def left(self, recipient: ServedRole) -> None:
        """Begin nothing more with a consumer."""
        if not recipient.role.worker:
            self[recipient.role.id].leave()

    def gone(self, recipient: ServedRole) -> None:
        """Let another consumer come in place of one that is gone."""
        if not recipient.role.worker:
            self[recipient.role.id].go()

    def tripped(self, recipient: ServedRole) -> None:
        """Give a consumer nothing more in its turn."""
        self[recipient.role.id].trip()

    def recovered(self, recipient: ServedRole) -> None:
        """Let a consumer read again."""
        if not recipient.role.worker:
            self[recipient.role.id].recover()

    def want_order(self, role_ids: Collection[int]) -> set[int]:
        """Take it that these roles want order, and no others.

        Returns:
            Those of them that did not want it before.
        """
        roles = {*self, *role_ids}
        return {role_id for role_id in roles if self[role_id].keys.want(role_id in role_ids)}
