"""Parties: the consumers that get the same bundles, what waits for them, and how much of it goes together."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain, groupby
from types import MappingProxyType
from typing import TypeAlias

from xbus.broker.back.log import BundleEntry, PagePart, Part, SmallEnvelope
from xbus.broker.back.progress import RESERVE_POSITIONS, ConsumerRole
from xbus.broker.back.recipients import BundleStatus, RecipientFailed, RecipientProxy, ServedRole
from xbus.errors import CallError
from xbus.rpc.codec import Value

MAX_WAITING_BYTES = 1024 * 1024
"""The items that wait for a recipient have about this many bytes at most. More takes more memory."""

MOST_ENVELOPES = 128
"""The largest bundle. More spares calls, and leaves more in doubt when a recipient is lost."""

MOST_TOGETHER = 85
"""The largest bundle for consumers that decide together. Two are out then, one is committed while the next is prepared,
and there is room for a third in what may be in doubt after a crash. More spares calls, and waits for commits."""

MOST_WAITING = 2 * MOST_ENVELOPES
"""So many envelopes wait at most: while a bundle is under way the next one is there."""

FIRST_ENVELOPES = 8
"""The largest bundle for a recipient whose pace is not known yet."""

BUNDLE_SECONDS = 0.1
"""A bundle is cut so that it takes about this long. More spares calls, and makes others wait longer for their turn."""


Apart: TypeAlias = tuple[Part, list[ServedRole]]
"""An envelope that is to be brought without those that wait, as a part, and who gets it."""


class BundleSize:
    """The number of envelopes that go together: as many as the recipient carries out in ``BUNDLE_SECONDS``."""

    def __init__(self) -> None:
        self.envelopes = FIRST_ENVELOPES

    def learn(self, committed: int, seconds: float, *, has_failed: bool) -> None:
        """Learn from a bundle.

        Args:
            committed: how many envelopes of it were.
            seconds: how long it took.
            has_failed: whether any of it failed: then each goes alone until one goes well.
        """
        if has_failed or not committed:
            self.envelopes = 1
            return
        fitting = int(BUNDLE_SECONDS * committed / max(seconds, 1e-6))
        self.envelopes = max(1, min(fitting, 2 * self.envelopes, MOST_ENVELOPES))


class BundleParty:
    """One consumer that decides alone, or all those that decide together about the same envelopes.

    Args:
        recipients: those.
        roles: theirs.

    Attributes:
        recipients: those that are still in it.
        roles: theirs, in the same order.
        parts: the envelopes that wait, in the order of their last positions.
        apart: envelopes that the turn brings before those that wait, as not all get them, or not as they were sent.
        size: how many of them go together.
        most: so many go together at the most, to all takers; each of them gets its share.
        out: the calls that hand envelopes over, and whose outcome is not noted.
        turn: the task that waits for slots and keys, or brings what can't go with others; None where none does.
        raw: the envelopes that wait for workers, in the order of the log; behind these they wait in ``parts``.
        at_workers: the calls that take envelopes through workers, in the order of the log.
        worker_size: how many of them go together.
        by_workers: whether workers may be before its consumers.
        is_closing: whether nothing more is added, as one of them has left it.
        change: set when anything was taken or ends; None while nobody waits for that.
    """

    def __init__(self, recipients: Sequence[ServedRole], roles: Sequence[ConsumerRole]) -> None:
        self.recipients = list(recipients)
        self.roles = list(roles)
        self.parts: list[Part] = []
        self.apart: list[Apart] = []
        self.size = BundleSize()
        self.most = MOST_TOGETHER if len(recipients) > 1 else MOST_ENVELOPES
        self.out: set[GroupCall] = set()
        self.turn: asyncio.Task[None] | None = None
        self.raw: list[Part] = []
        self.at_workers: list[WorkerCall] = []
        self.worker_size = BundleSize()
        self.by_workers = False
        self.is_closing = False
        self.change: asyncio.Event | None = None

    @property
    def takers(self) -> int:
        """Count the calls that may be out at once: each takes an instance of each consumer."""
        return min([len(recipient.instances) for recipient in self.recipients], default=0)

    @property
    def at_work(self) -> int:
        """Count the calls that are out, those that follow one another at the same instances once."""
        return len({id(call.instances) for call in self.out})

    @property
    def is_idle(self) -> bool:
        """Check whether nothing waits, and nothing is under way."""
        return not self.has_waiting and not self.is_under_way

    @property
    def is_under_way(self) -> bool:
        """Check whether it is not known of all that does not wait what has become of it."""
        return bool(self.out or self.turn)

    @property
    def is_over(self) -> bool:
        """Check whether nothing waits or is under way, and nothing is to be added."""
        return self.is_closing and self.is_idle

    def is_for(self, recipients: Collection[ServedRole]) -> bool:
        """Check whether the next envelope for these consumers may be added."""
        if self.is_closing or len(recipients) != len(self.recipients):
            return False
        return all(recipient in self.recipients for recipient in recipients)

    def leave(self, recipient: ServedRole) -> list[SmallEnvelope]:
        """Let a consumer leave; what waits goes to the others without it.

        Returns:
            The envelopes that were to be brought to it without those that wait.
        """
        del self.roles[self.recipients.index(recipient)]
        self.recipients.remove(recipient)
        self.is_closing = True
        found: list[SmallEnvelope] = []
        for apart in (self.apart, *[call.apart for call in self.out]):
            for part, recipients in apart:
                if recipient in recipients:
                    recipients.remove(recipient)
                    found += part.smalls()
        return found

    # -- what waits ------------------------------------------------------------------------------------------------

    @property
    def has_waiting(self) -> bool:
        """Check whether any envelope waits, for workers or behind them."""
        return bool(self.parts or self.raw or self.at_workers)

    def unready(self) -> list[Part]:
        """Give what waits at workers and for workers, as it was sent."""
        return [*[part for call in self.at_workers for part in call.left()], *self.raw]

    def all_parts(self) -> list[Part]:
        """Give all that waits."""
        return [*self.parts, *self.unready()] if self.by_workers else self.parts

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the items that wait, those of envelopes that are brought apart among them."""
        return sum([part.size for part in self.all_parts()]) + sum([part.size for part, _ in self.apart])

    @property
    def waiting(self) -> int:
        """The number of envelopes that wait, those that are brought apart among them."""
        return sum([len(part.positions) for part in self.all_parts()]) + len(self.apart)

    def add(self, part: Part, *, is_ready: bool = False) -> None:
        """Have further envelopes wait.

        Args:
            is_ready: whether all workers before the consumers have had them.
        """
        if self.by_workers and not is_ready:
            self.raw.append(part)
        else:
            self.parts.append(part)

    # -- what workers get ------------------------------------------------------------------------------------------

    def next_to_workers(self) -> "WorkerCall | None":
        """Take what goes to workers now, ahead of the consumers; None where that is nothing."""
        ahead = [len(part.positions) for part in self.parts] + [len(call.bundle) for call in self.at_workers]
        if not self.raw or sum(ahead) >= self.most or len(self.at_workers) >= max(1, self.takers):
            return None
        # Workers may make much more of an envelope than it was.
        if sum([part.size for part in self.parts]) > MAX_WAITING_BYTES:
            return None
        going, staying = _cut(self.raw, self.worker_size.envelopes)
        if not self.is_within_reach(going[-1].positions[-1]):
            return None
        self.raw = staying
        self.at_workers.append(call := WorkerCall(self, [small for part in going for small in part.smalls()]))
        return call

    def take_made(self) -> None:
        """Have wait for the consumers what workers have made, in the order of the log."""
        while self.at_workers:
            self.parts += self.at_workers[0].take_made()
            if not self.at_workers[0].is_over:
                return
            del self.at_workers[0]

    @property
    def has_room(self) -> bool:
        """Check whether another envelope may be added."""
        return self.waiting_bytes <= MAX_WAITING_BYTES and self.waiting < MOST_WAITING

    def has_room_for(self, part: Part) -> bool:
        """Check whether there is room for one more part; a first one has it always."""
        return self.waiting + len(part.positions) <= MOST_WAITING and self.waiting_bytes <= MAX_WAITING_BYTES

    def room_for(self, smalls: Sequence[SmallEnvelope]) -> int:
        """Count the first of some envelopes that may be added now, one after the other."""
        fitting = smalls[: max(0, MOST_WAITING - self.waiting)]
        before = accumulate([small.size for small in fitting], initial=self.waiting_bytes)
        return sum([waiting <= MAX_WAITING_BYTES for _, waiting in zip(fitting, before, strict=False)])

    @property
    def keys(self) -> set[str]:
        """The ordering keys of all that waits."""
        return {key for part in self.parts for key in part.ordering_keys}

    def keys_in_hand(self) -> set[str] | None:
        """Give the ordering keys of which an instance of the consumers has an envelope; None where none wants order."""
        in_hand: set[str] | None = None
        for role in self.roles:
            if role.keys.is_wanted:
                in_hand = {*(in_hand or ()), *role.keys_in_hand.all()}
        return in_hand

    def take(self, keys_in_hand: Collection[str] | None = None, most: int = MOST_ENVELOPES) -> list[Part]:
        """Take the next parts: as many envelopes as go together; several takers divide them.

        Args:
            keys_in_hand: the ordering keys whose envelopes stay, as another taker has one of each. None where nobody
                wants order; else no two of a key go together.
            most: no more than this.
        """
        if self.change is not None:
            self.note_change()
        parts = self.parts
        most = min(most, self.size.envelopes, self.most)
        if keys_in_hand is not None:
            return self._take_in_order(keys_in_hand, most)
        number = len(parts[0].positions)
        if len(parts) == 1 and number <= most and (number == 1 or self.takers == 1):
            self.parts = []
            return parts
        most = min(most, -(-min(self.waiting, self.most) // max(1, self.takers)))
        taken, self.parts = _cut(parts, most)
        return taken

    def last_of_next(self, keys_in_hand: Collection[str] | None) -> int:
        """Give a position above which nothing is taken next; see ``take``."""
        most, last = min(self.size.envelopes, -(-self.most // max(1, self.takers))), self.parts[0].positions[0]
        for part in self.parts:
            going: Sequence[int] = part.positions
            if keys_in_hand:
                # What is of such a key stays, and others go in place of it.
                keyed = zip(going, part.ordering_keys, strict=True)
                going = [position for position, key in keyed if key not in keys_in_hand]
            if going:
                last = max(last, going[min(most, len(going)) - 1])
            most -= len(going)
            if most <= 0:
                break
        return last

    def is_within_reach(self, position: int) -> bool:
        """Check whether a crash may leave in doubt all positions up to this one that are not settled.

        Where nothing is out there is nothing to wait for, and they may.
        """
        if not self.out:
            return True
        cursors = [role.cursor for role in self.roles]
        return False not in [each is None or position <= each.reach(RESERVE_POSITIONS) for each in cursors]

    def _take_in_order(self, keys_in_hand: Collection[str], most: int) -> list[Part]:
        if self.takers > 1:
            # None can take an envelope of a key that is taken.
            most = min(most, -(-min(len(self.keys), self.most) // self.takers))
        taken: list[Part] = []
        left: list[Part] = []
        keys: set[str] = set()
        is_over = False
        for part in self.parts:
            going: list[int] = []
            staying: list[int] = []
            is_over = is_over or _goes_apart(taken, part)
            for index, key in enumerate(part.ordering_keys):
                is_over = is_over or len(keys) == most or key in keys
                if is_over or key in keys_in_hand:
                    staying.append(index)
                else:
                    keys.add(key)
                    going.append(index)
            taken += [part] if not staying else [part.chosen(going)] if going else []
            left += [part] if not going else [part.chosen(staying)] if staying else []
        self.parts = left
        return taken

    def put_back(self, parts: Sequence[Part]) -> None:
        """Have parts wait again that were taken and not begun.

        By their last positions they stay in the order of the log, but for those of other ordering keys: a call takes
        nothing that lies behind a second envelope of a key.
        """
        self.parts = sorted([*parts, *self.parts], key=lambda part: part.positions[-1])

    def take_all(self) -> list[Part]:
        """Take all that waits; workers have it for nobody then."""
        taken = self.all_parts()
        for call in self.at_workers:
            if call.task is not None:
                call.task.cancel()
        self.parts, self.raw, self.at_workers = [], [], []
        self.note_change()
        return taken

    # -- what is waited for ----------------------------------------------------------------------------------------

    def note_change(self) -> None:
        """Wake those who wait until something is taken, or has ended."""
        if self.change is not None:
            self.change.set()
            self.change = None

    async def _changed(self) -> None:
        self.change = self.change or asyncio.Event()
        await self.change.wait()

    async def room(self) -> None:
        """Wait until another envelope may be added."""
        while not self.has_room:
            await self._changed()
            # What was taken goes out first: whoever adds what comes next keeps the loop for long.
            await asyncio.sleep(0)

    async def key_free(self) -> None:
        """Wait until an envelope that waits is of no ordering key that an instance of the consumers has in hand."""
        while self.parts and self.recipients:
            in_hand = self.keys_in_hand()
            if in_hand is None or not in_hand >= (keys := self.keys):
                return
            key = next(iter(keys))
            await next(role.keys_in_hand for role in self.roles if key in role.keys_in_hand).changed()

    async def emptied(self) -> None:
        """Wait until nothing waits."""
        while self.has_waiting:
            await self._changed()

    async def all_back(self) -> None:
        """Wait until no call is out."""
        while self.out:
            await self._changed()

    async def settled(self) -> None:
        """Wait until nothing waits, and it is known what has become of all that was under way.

        A call that comes back may put envelopes back that were not begun.
        """
        while not self.is_idle:
            await self._changed()


class GroupCall:
    """Envelopes that are out at an instance of each consumer of a party.

    Args:
        party: in which they waited.
        instances: those that are given them, each with its consumer.
        slots: how many slots of an instance were taken for that.
        parts: the envelopes.
        began: when that was, on the broker's monotonic clock.

    Attributes:
        follows: whether one message commits the envelopes of the call before and brings these.
        positions: theirs, which grow.
        ids: theirs, of 16 bytes.
        items: the number of all their items.
        busy_before: for how many seconds each of several instances had had calls to answer.
        counted: failures that count with the call before.
        answers: those that have come to the last call of each instance.
        apart: envelopes that can't go with others, and are to be brought in a run each.
        has_failed: whether one of the last answers says that not all went well.
        is_over: whether all answers have come, or are not waited for any more.
        task: what notes the outcome, or finds it, where that takes long.
    """

    # Most calls never set these.
    follows = False
    busy_before: Mapping[RecipientProxy, float] = MappingProxyType({})
    counted: Sequence[RecipientFailed] = ()
    apart: Sequence[Apart] = ()
    has_failed = False
    is_over = False
    task: asyncio.Task[None] | None = None

    def __init__(
        self,
        party: BundleParty,
        instances: Mapping[RecipientProxy, ServedRole],
        slots: dict[RecipientProxy, int],
        parts: Sequence[Part],
        began: float,
    ) -> None:
        self.party = party
        self.instances = instances
        self.slots = slots
        self.parts = parts
        self.began = began
        self.answers: dict[RecipientProxy, tuple[Value, CallError | None]] = {}
        if len(instances) > 1:
            self.busy_before = {each: each.busy_seconds for each in instances}
        if len(parts) == 1:
            (part,) = parts
            self.positions, self.ids, self.items = part.positions, part.ids, part.items
        else:
            self.positions = positions_of(parts)
            self.ids = [each for part in parts for each in part.ids]
            self.items = sum([part.items for part in parts])

    @property
    def logins(self) -> str:
        """The logins of the roles, for people."""
        return ", ".join([each.role.login for each in self.instances])

    def begin_votes(self) -> None:
        """Note that the call before has ended: the work until then counts as its own."""
        self.busy_before = {each: each.busy_seconds for each in self.busy_before}

    def busy_seconds(self) -> dict[RecipientProxy, float]:
        """Compute for how many seconds each instance has had calls to answer since this began."""
        return {each: each.busy_seconds - before for each, before in self.busy_before.items()}

    def on_wire(self, logins: Mapping[int, str | None] | None, *, wants_headers: bool) -> Sequence[BundleEntry]:
        """Write the envelopes as :func:`bundle_on_wire` does."""
        if len(self.parts) == 1:
            return self.parts[0].on_wire(logins, wants_headers=wants_headers)
        written = [part.on_wire(logins, wants_headers=wants_headers) for part in self.parts]
        return [*chain.from_iterable(written)]

    def chosen(self, positions: Collection[int]) -> list[Part]:
        """Give the parts of the envelopes at some positions."""
        found: list[Part] = []
        for part in self.parts:
            indexes = [index for index, position in enumerate(part.positions) if position in positions]
            found += [part.chosen(indexes)] if indexes else []
        return found

    def bundle(self) -> list[SmallEnvelope]:
        """Give the envelopes as objects."""
        return [small for part in self.parts for small in part.smalls()]


class WorkerCall:
    """Envelopes that pass workers before they go to the consumers of a party.

    Args:
        party: in which they wait.
        bundle: the envelopes, as they were sent.

    Attributes:
        task: what carries it out.
        made: for each envelope what the workers made of it, or why they did not; ``NOT_BEGUN`` while that is open.
    """

    task: asyncio.Task[None] | None = None

    def __init__(self, party: BundleParty, bundle: Sequence[SmallEnvelope]) -> None:
        self.party = party
        self.bundle = bundle
        self.made: list[SmallEnvelope | BundleStatus] = [BundleStatus.NOT_BEGUN] * len(bundle)
        self._taken = 0

    @property
    def is_over(self) -> bool:
        """Check whether all that was made was taken."""
        return self._taken == len(self.made)

    def left(self) -> list[Part]:
        """Give the envelopes that were not taken, as they were sent."""
        return [] if self.is_over else [PagePart.of(self.bundle[self._taken :])]

    def take_made(self) -> list[Part]:
        """Take the next envelopes, up to the first one of which it is open what becomes of it."""
        found: list[Part] = []
        for status, group in groupby(self.made[self._taken :], key=_status):
            if status is BundleStatus.NOT_BEGUN:
                break
            until = self._taken + len(list(group))
            pairs = zip(self.bundle[self._taken : until], self.made[self._taken : until], strict=True)
            # What goes alone is read anew: it is here as it was sent.
            made = [after if isinstance(after, SmallEnvelope) else before for before, after in pairs]
            found.append(PagePart.of(made, goes_alone=status is not None))
            self._taken = until
        return found


def _status(made: SmallEnvelope | BundleStatus) -> BundleStatus | None:
    return made if isinstance(made, BundleStatus) else None


def _cut(parts: Sequence[Part], most: int) -> tuple[list[Part], list[Part]]:
    """Give the first parts with so many envelopes at most, of which none goes alone beside others; and the rest."""
    taken: list[Part] = []
    left = list(parts)
    while left and most and not _goes_apart(taken, left[0]):
        if len(left[0].positions) > most:
            first, left[0] = left[0].cut(most)
            taken.append(first)
            break
        most -= len(left[0].positions)
        taken.append(left.pop(0))
    return taken, left


def _goes_apart(taken: Sequence[Part], part: Part) -> bool:
    """Check whether a part does not go with those before it, as one of them goes alone."""
    return bool(taken) and (part.goes_alone or taken[-1].goes_alone)


def positions_of(parts: Sequence[Part]) -> Sequence[int]:
    """Give the positions of all envelopes of some parts, in their order."""
    if len(parts) == 1:
        return parts[0].positions
    first = following = parts[0].positions[0]
    for part in parts:
        start, last = part.positions[0], part.positions[-1]
        if start != following or last - start >= len(part.positions):
            return sorted([each for part in parts for each in part.positions])
        following = last + 1
    return range(first, following)
