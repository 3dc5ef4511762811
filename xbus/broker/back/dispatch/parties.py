"""Parties: the consumers that get the same bundles, what waits for them, and how much of it goes together."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

from xbus.broker.back.log import GroupPart, SmallEnvelope, small_envelopes
from xbus.broker.back.recipients import RecipientProxy, ServedRole
from xbus.errors import CallError
from xbus.rpc.codec import Value

MAX_WAITING_BYTES = 1024 * 1024
"""The items that wait for a recipient have about this many bytes at most. More takes more memory."""

MOST_ENVELOPES = 128
"""The largest bundle. More spares calls, and leaves more in doubt when a recipient is lost."""

MOST_WAITING = 2 * MOST_ENVELOPES
"""So many envelopes wait at most: while a bundle is under way the next one is there."""

FIRST_ENVELOPES = 8
"""The largest bundle for a recipient whose pace is not known yet."""

BUNDLE_SECONDS = 0.1
"""A bundle is cut so that it takes about this long. More spares calls, and makes others wait longer for their turn."""


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


class BundleQueue:
    """The envelopes that wait for one party, in position order."""

    def __init__(self) -> None:
        self.size = BundleSize()
        self.envelopes: list[SmallEnvelope] = []
        """The waiting envelopes, the first ones first."""
        self._bytes = 0
        self._taken = asyncio.Event()

    def __len__(self) -> int:
        return len(self.envelopes)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the items that wait."""
        return self._bytes

    @property
    def has_room(self) -> bool:
        """Check whether another envelope may be added."""
        return self._bytes <= MAX_WAITING_BYTES and len(self.envelopes) < MOST_WAITING

    def room_for(self, smalls: Sequence[SmallEnvelope]) -> int:
        """Count the first of some envelopes that may be added now, one after the other."""
        fitting = smalls[: max(0, MOST_WAITING - len(self.envelopes))]
        before = accumulate([small.size for small in fitting], initial=self._bytes)
        return sum([waiting <= MAX_WAITING_BYTES for _, waiting in zip(fitting, before, strict=False)])

    async def room(self) -> None:
        """Wait until another envelope may be added."""
        while not self.has_room:
            await self._taken.wait()
            # What was taken goes out first: whoever adds what comes next keeps the loop for long.
            await asyncio.sleep(0)

    async def emptied(self) -> None:
        """Wait until nothing waits."""
        while self.envelopes:
            await self._taken.wait()

    def add(self, smalls: Sequence[SmallEnvelope]) -> None:
        """Add the next envelopes."""
        self.envelopes += smalls
        self._bytes += sum([small.size for small in smalls])

    def put_back(self, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes go next that were taken and not begun."""
        self.envelopes[:0] = bundle
        self._bytes += sum([small.size for small in bundle])

    @property
    def keys(self) -> set[str]:
        """The ordering keys of all that waits."""
        return {small.envelope.head.ordering_key or "" for small in self.envelopes}

    def waiting(self) -> Sequence[SmallEnvelope]:
        """Give all that waits, and let it wait on."""
        return tuple(self.envelopes)

    def take(
        self, keys_in_hand: Collection[str] | None = None, takers: int = 1, most: int = MOST_ENVELOPES
    ) -> list[SmallEnvelope]:
        """Take the next bundle.

        Args:
            keys_in_hand: the ordering keys whose envelopes stay, as another taker has one of each. None where nobody
                wants order; else no two of a key go together.
            takers: so many share what waits.
            most: no more than this.
        """
        to_share = len(self.envelopes)
        if takers > 1 and keys_in_hand is not None:
            # None can take an envelope of a key that is taken.
            to_share = len(self.keys)
        most = min(most, self.size.envelopes, -(-to_share // takers))
        if keys_in_hand is None:
            taken = self.envelopes[:most]
            del self.envelopes[:most]
        else:
            taken = self._take_in_order(keys_in_hand, most)
        self._note_taken(taken)
        return taken

    def _take_in_order(self, keys_in_hand: Collection[str], most: int) -> list[SmallEnvelope]:
        taken: list[SmallEnvelope] = []
        passed: list[SmallEnvelope] = []
        keys: set[str] = set()
        for small in self.envelopes:
            key = small.envelope.head.ordering_key or ""
            if len(taken) == most or key in keys:
                break
            if key in keys_in_hand:
                passed.append(small)
            else:
                keys.add(key)
                taken.append(small)
        self.envelopes[: len(taken) + len(passed)] = passed
        return taken

    def take_all(self) -> list[SmallEnvelope]:
        """Take all that waits."""
        taken, self.envelopes = self.envelopes, []
        self._note_taken(taken)
        return taken

    def _note_taken(self, taken: Sequence[SmallEnvelope]) -> None:
        self._bytes -= sum([small.size for small in taken])
        self._taken.set()
        self._taken = asyncio.Event()


class BundleParty:
    """One consumer that decides alone, or all those that decide together about the same envelopes.

    Args:
        recipients: those.

    Attributes:
        recipients: those that are still in it.
        parts: the envelopes that wait to be handed over as columns, the first ones first.
        out: the calls that hand them over, and whose outcome is not known.
        objects: the envelopes that wait as objects, in front of the parts.
        change: set when anything that is under way ends; None while nobody waits for that.
        go_on: hands parts over, as far as it can now.
        sending: the tasks that send what lies in the queue.
        is_closing: whether nothing more is added, as one of them has left it.
    """

    def __init__(self, recipients: Sequence[ServedRole]) -> None:
        self.recipients = list(recipients)
        self.parts: list[GroupPart] = []
        self.out: set[GroupCall] = set()
        self.go_on: Callable[[], object] | None = None
        self.sending: set[asyncio.Task[None]] = set()
        self.is_closing = False
        self.objects = BundleQueue()
        self.change: asyncio.Event | None = None

    @property
    def queue(self) -> BundleQueue:
        """The envelopes that wait; those of parts go on as objects, as soon as anybody looks for them here."""
        if self.parts:
            self.objects.add([small for part in self.parts for small in small_envelopes(part)])
            self.parts.clear()
        return self.objects

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the items that wait."""
        return self.objects.waiting_bytes + sum([part.size for part in self.parts])

    @property
    def takers(self) -> int:
        """Count the calls that may be out at once: each takes an instance of each consumer."""
        if len(self.recipients) == 1:
            return len(self.recipients[0].instances)
        return min([len(recipient.instances) for recipient in self.recipients], default=0)

    @property
    def is_under_way(self) -> bool:
        """Check whether envelopes are out, or sent by a task: it is not known of all what has become of them."""
        return bool(self.out or self.sending)

    def end(self, sending: "asyncio.Task[None]") -> None:
        """Note that a task sends nothing more."""
        self.sending.discard(sending)
        self.note_change()

    def note_change(self) -> None:
        """Wake those who wait until something that is under way has ended."""
        if self.change is not None:
            self.change.set()
            self.change = None

    async def settled(self) -> None:
        """Wait until nothing waits, and it is known what has become of all that was under way.

        A call that comes back may put envelopes back that were not begun.
        """
        while self.queue or self.is_under_way:
            await self.queue.emptied()
            if self.is_under_way:
                self.change = self.change or asyncio.Event()
                await self.change.wait()

    @property
    def is_over(self) -> bool:
        """Check whether nothing waits or is under way, and nothing is to be added."""
        return self.is_closing and self.is_idle

    def is_for(self, recipients: Collection[ServedRole]) -> bool:
        """Check whether the next envelope for these consumers may be added."""
        if self.is_closing or len(recipients) != len(self.recipients):
            return False
        return all(recipient in self.recipients for recipient in recipients)

    def leave(self, recipient: ServedRole) -> None:
        """Let a consumer leave; what waits goes to the others without it."""
        self.recipients.remove(recipient)
        self.is_closing = True

    # -- parts ----------------------------------------------------------------------------------------------------

    @property
    def has_queued(self) -> bool:
        """Check whether anything lies in the queue; parts come behind it."""
        return bool(self.objects.envelopes)

    @property
    def is_idle(self) -> bool:
        """Check whether nothing waits, and nothing is under way."""
        return not self.objects and not self.parts and not self.is_under_way

    def has_room_for(self, part: GroupPart) -> bool:
        """Check whether there is room for one more part; a first one has it always."""
        number = sum([len(each.places) for each in (*self.parts, part)])
        return number <= MOST_WAITING and self.waiting_bytes <= MAX_WAITING_BYTES

    def take_parts(self, keys_in_hand: Collection[str] | None = None, most: int = MOST_ENVELOPES) -> list[GroupPart]:
        """Take the next parts: as many envelopes as go together; several takers divide them.

        Args:
            keys_in_hand: see ``BundleQueue.take``.
            most: no more than this.
        """
        parts = self.parts
        most = min(most, self.objects.size.envelopes)
        if keys_in_hand is not None:
            return self._take_in_order(keys_in_hand, most)
        number = len(parts[0].places)
        if len(parts) == 1 and number <= most and (number == 1 or self.takers == 1):
            self.parts = []
            return parts
        waiting = sum([len(each.places) for each in parts])
        most = min(most, -(-waiting // self.takers))
        taken: list[GroupPart] = []
        while parts and most:
            if len(parts[0].places) > most:
                first, parts[0] = parts[0].cut(most)
                taken.append(first)
                break
            most -= len(parts[0].places)
            taken.append(parts.pop(0))
        return taken

    def _take_in_order(self, keys_in_hand: Collection[str], most: int) -> list[GroupPart]:
        if self.takers > 1:
            most = min(most, -(-len({key for part in self.parts for key in part.ordering_keys}) // self.takers))
        taken: list[GroupPart] = []
        left: list[GroupPart] = []
        keys: set[str] = set()
        is_over = False
        for part in self.parts:
            going: list[int] = []
            staying: list[int] = []
            for index, key in enumerate(part.ordering_keys):
                is_over = is_over or len(keys) == most or key in keys
                if is_over or key in keys_in_hand:
                    staying.append(index)
                else:
                    keys.add(key)
                    going.append(index)
            taken += [part] if not staying else [part.chosen(going)] if going else []
            left += [part] if not going else [part.chosen(staying).freed()] if staying else []
        self.parts = left
        return taken


class GroupCall:
    """Envelopes that are out at an instance of each consumer of a party.

    Args:
        party: in which they waited.
        instances: those that are given them, each with its consumer.
        slots: how many slots of an instance were taken for that.
        parts: the envelopes.
        began: when that was, on the loop's clock.

    Attributes:
        positions: theirs, which grow.
        ids: theirs, of 16 bytes.
        items: the number of all their items.
        busy_before: for how many seconds each of several instances had had calls to answer.
        answers: those that have come to the last call of each instance.
        is_over: whether the outcome is known, or is to be found otherwise.
    """

    __slots__ = (
        "answers",
        "began",
        "busy_before",
        "ids",
        "instances",
        "is_over",
        "items",
        "parts",
        "party",
        "positions",
        "slots",
    )

    def __init__(
        self,
        party: BundleParty,
        instances: Mapping[RecipientProxy, ServedRole],
        slots: Mapping[RecipientProxy, int],
        parts: Sequence[GroupPart],
        began: float,
    ) -> None:
        self.party = party
        self.instances = instances
        self.slots = slots
        self.parts = parts
        self.began = began
        self.answers: dict[RecipientProxy, tuple[Value, CallError | None]] = {}
        self.busy_before = {each: each.busy_seconds for each in instances} if len(instances) > 1 else {}
        self.is_over = False
        self.positions = parts[0].positions if len(parts) == 1 else positions_of(parts)
        self.ids: list[bytes] = []
        self.items = 0
        for part in parts:
            self.ids += part.column(part.sealed.group.envelope_ids)
            self.items += sum(part.column(part.sealed.group.items))

    @property
    def logins(self) -> str:
        """The logins of the roles, for people."""
        return ", ".join([each.role.login for each in self.instances])

    def busy_seconds(self) -> dict[RecipientProxy, float]:
        """Compute for how many seconds each instance has had calls to answer since this began."""
        return {each: each.busy_seconds - before for each, before in self.busy_before.items()}

    def bundle(self) -> list[SmallEnvelope]:
        """Give the envelopes as objects."""
        return [small for part in self.parts for small in small_envelopes(part)]


def positions_of(parts: Sequence[GroupPart]) -> Sequence[int]:
    """Give the positions of all envelopes of some parts, in their order."""
    first, last = parts[0].positions[0], parts[-1].positions[-1]
    if sum([len(part.positions) for part in parts]) == last - first + 1:
        return range(first, last + 1)
    return [each for part in parts for each in part.positions]
