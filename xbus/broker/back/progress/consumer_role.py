"""A consumer role, as one object: its state, cursor, lane, pace, breaker, blocked keys, and what is in flight to it."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence, Set

from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.recipients import CircuitBreaker, CircuitBreakers, ServedRole
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import CONSUMER_MOVES, ConsumerState, check_move

WINDOW_SECONDS = 60.0

MERGED_SECONDS = 0.1
"""Seconds whose waits are one entry. More keeps fewer entries, and forgets that much too early."""


class Pace:
    """Remembers for a minute how long one role kept others waiting.

    Args:
        behind_after: if it kept others waiting for this many seconds in that time, it is behind.
    """

    def __init__(self, behind_after: float) -> None:
        self._behind_after = behind_after
        self._waits: deque[tuple[float, float]] = deque()
        self._waited = 0.0
        """The sum of all entries, as there may be hundreds and each run asks several times."""

    def kept_waiting(self, seconds: float, now: float) -> None:
        """Note that others waited for the role.

        Args:
            seconds: for how long.
            now: the end of that time, in monotonic seconds.
        """
        since, merged = self._waits[-1] if self._waits else (-WINDOW_SECONDS, 0.0)
        if 0 <= now - since < MERGED_SECONDS:
            self._waits[-1] = (since, merged + seconds)
        else:
            self._waits.append((now, seconds))
        self._waited += seconds

    def allowance(self, now: float) -> float:
        """Compute for how many seconds more others wait for the role; 0 if it is behind."""
        while self._waits and self._waits[0][0] <= now - WINDOW_SECONDS:
            self._waited -= self._waits.popleft()[1]
        if not self._waits:
            self._waited = 0.0
        return max(0.0, self._behind_after - self._waited)

    def forget(self) -> None:
        """Let the role begin anew."""
        self._waits.clear()
        self._waited = 0.0


class Lane:
    """Knows the recipients that it reads for, and how far it has come.

    Args:
        position: all envelopes up to here were dealt with.
        of_slow: whether it reads for a role that held others up: nobody may join before it reaches the head.
    """

    def __init__(self, position: int, *, of_slow: bool = False) -> None:
        self.position = position
        self.of_slow = of_slow
        self.joinable = not of_slow
        """True while it stands still between two envelopes, so that others at the same position may join."""
        self.task: asyncio.Task[None] | None = None
        self.rests = False
        """True while it waits for the log to grow: all before is handed out."""
        self.woken = asyncio.Event()
        """Set when something lies behind its position."""
        self._of_service: defaultdict[str, dict[ServedRole, None]] = defaultdict(dict)
        self._turns: deque[ServedRole] = deque()

    def add(self, recipient: ServedRole) -> None:
        """Read for a recipient too."""
        self._of_service[recipient.role.service][recipient] = None
        self._turns.append(recipient)

    def remove(self, recipient: ServedRole) -> None:
        """Read no longer for a recipient."""
        of_service = self._of_service[recipient.role.service]
        of_service.pop(recipient, None)
        if not of_service:
            del self._of_service[recipient.role.service]
        self._turns.remove(recipient)

    @property
    def services(self) -> Collection[str]:
        """The services that those provide for whom it reads."""
        return self._of_service.keys()

    def __contains__(self, recipient: ServedRole) -> bool:
        return recipient in self._of_service.get(recipient.role.service, ())

    def __len__(self) -> int:
        return len(self._turns)

    def recipients(self) -> Sequence[ServedRole]:
        """List those that it reads for."""
        return list(self._turns)

    def of_services(self, services: Iterable[str]) -> list[ServedRole]:
        """List those of some services, in the order in which they came."""
        return [recipient for service in services for recipient in self._of_service.get(service, ())]

    def next_ones(self, most: int) -> list[ServedRole]:
        """List so many recipients, others each time until all had their turn."""
        found = [self._turns[place] for place in range(min(most, len(self._turns)))]
        self._turns.rotate(-len(found))
        return found


class InFlight:
    """The envelopes that runs bring to a role just now, and its rows that changed since they were read; pure."""

    def __init__(self) -> None:
        self.positions: set[int] = set()
        """The positions of the envelopes in flight; whoever brings a group adds its, and takes them away."""
        self._outdated: set[int] = set()

    # -- envelopes -------------------------------------------------------------------------------------------------

    def begin(self, position: int) -> None:
        """Note that a run begins to bring an envelope."""
        self.positions.add(position)

    def begin_all(self, positions: Iterable[int]) -> None:
        """Note that envelopes begin to be brought."""
        self.positions.update(positions)

    def has_any(self, positions: Iterable[int]) -> bool:
        """Check whether an envelope at any of these positions is being brought."""
        return not self.positions.isdisjoint(positions)

    def end(self, position: int) -> None:
        """Note that the run has ended, and that its results are noted."""
        self.positions.discard(position)

    def end_all(self, positions: Iterable[int]) -> None:
        """The same for several envelopes, or none of them was begun."""
        self.positions.difference_update(positions)

    # -- delivery rows ---------------------------------------------------------------------------------------------

    def begin_reading(self) -> Set[int]:
        """Begin to read the rows of the role.

        Returns:
            The rows that are not to be taken up of those that will be found: what is being brought to the role, to
            which is added what is outdated until this is called again. A run may begin and end while rows are read, and
            its row be found all the same.
        """
        self._outdated = set(self.positions)
        return self._outdated

    def outdate(self, position: int) -> None:
        """Mark a row as outdated for those who have read it: a run took it, or it changed."""
        self._outdated.add(position)

    def is_outdated(self, position: int) -> bool:
        """Check whether a row that was read is outdated."""
        return position in self._outdated


class KeysInHand:
    """Ordering keys from the hand-over of an envelope until its outcome is noted; empty for a role without order.

    An envelope that failed has its row by then, which blocks the key: so nothing of the key can come in between.
    """

    def __init__(self) -> None:
        self.key_at: dict[int, str] = {}
        """The keys by the positions of their envelopes."""
        self._counts: Counter[str] = Counter()
        self._change = asyncio.Event()

    def __contains__(self, key: object) -> bool:
        return key in self._counts

    def all(self) -> Collection[str]:
        """Give all of them."""
        return self._counts.keys()

    def begin(self, position: int, key: str | None) -> None:
        """Note that an envelope is handed over; without a key its role wants no order."""
        if key is not None and position not in self.key_at:
            self.key_at[position] = key
            self._counts[key] += 1

    def begin_all(self, positions: Iterable[int], keys: Iterable[str]) -> None:
        """Note that envelopes are handed over that are not in hand yet, each with its key."""
        found = dict(zip(positions, keys, strict=True))
        self.key_at.update(found)
        self._counts.update(found.values())

    def end(self, positions: Iterable[int]) -> None:
        """Note that the outcome of some envelopes is noted."""
        if not self.key_at:
            return
        ended = [self.key_at.pop(position) for position in positions if position in self.key_at]
        for key in ended:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        if ended:
            self._change.set()
            self._change = asyncio.Event()

    async def free(self, key: str | None) -> None:
        """Wait until no instance has an envelope of a key."""
        while key in self._counts:
            await self._change.wait()

    async def changed(self) -> None:
        """Wait until the outcome of some envelope is noted."""
        await self._change.wait()


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
        """The recipient that serves it now, or did so last."""
        self.in_flight = InFlight()
        """The envelopes that runs are bringing to it."""
        self._tasks: dict[asyncio.Task[None], ServedRole | None] = {}
        """The tasks that bring it anything just now, each with what served it when they began."""
        self.reserving_to = 0
        """The ``handed_to`` of its cursor in the last page that the ledger began: it is written, or on its way."""
        self.reserved_to = 0
        """The ``handed_to`` of its cursor in the last page that is durable: hand-overs up to here may begin."""
        self.seen = 0
        """The highest position that a lane has passed for it: what is unsettled up to here is owed."""

    def bring_by(self, task: "asyncio.Task[None]") -> None:
        """Note a task that brings something to the role as it is served now, until it is done."""
        self._tasks[task] = self.served
        task.add_done_callback(self._tasks.pop)

    def predecessors(self, recipient: ServedRole) -> list[asyncio.Task[None]]:
        """List the tasks of the role's earlier service whose outcome is not known yet."""
        return [task for task, whom in self._tasks.items() if whom is not recipient]

    async def predecessors_over(self, recipient: ServedRole) -> None:
        """Wait until it is known what has become of what was brought when the role was served before."""
        if before := self.predecessors(recipient):
            await asyncio.wait(before)

    def is_served_by(self, recipient: ServedRole) -> bool:
        """Check whether a recipient may get anything in its turn."""
        return self.served is recipient and self.state in (ConsumerState.READING, ConsumerState.SLOW)

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
            The roles among them that did not want it before.
        """
        roles = {*self, *role_ids}
        return {role_id for role_id in roles if self[role_id].keys.want(role_id in role_ids)}
