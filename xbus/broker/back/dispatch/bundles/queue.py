"""The small envelopes that wait for one recipient, and how many of them go together; no event loop but to wait."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from xbus.broker.back.log import SmallEnvelope
from xbus.broker.journal.log.reading import LogEnvelope

MAX_WAITING_BYTES = 1024 * 1024
"""The items that wait for a recipient have about this many bytes at most. More takes more memory."""

MOST_ENVELOPES = 128
"""The largest bundle. More spares calls, and leaves more in doubt when a recipient is lost."""

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
    """The envelopes that wait for one recipient, in position order."""

    def __init__(self) -> None:
        self.size = BundleSize()
        self._waiting: deque[SmallEnvelope] = deque()
        self._bytes = 0
        self._taken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the items that wait."""
        return self._bytes

    @property
    def has_room(self) -> bool:
        """Check whether another envelope may be added."""
        return self._bytes <= MAX_WAITING_BYTES and len(self._waiting) < 2 * MOST_ENVELOPES

    async def room(self) -> None:
        """Wait until another envelope may be added."""
        while not self.has_room:
            await self._taken.wait()
            # What was taken goes out first: whoever adds what comes next keeps the loop for long.
            await asyncio.sleep(0)

    async def emptied(self) -> None:
        """Wait until nothing waits."""
        while self._waiting:
            await self._taken.wait()

    def add(self, small: SmallEnvelope) -> None:
        """Add the next envelope."""
        self._waiting.append(small)
        self._bytes += small.size

    def put_back(self, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes go next that were taken and not begun."""
        self._waiting.extendleft(reversed(bundle))
        self._bytes += sum(small.size for small in bundle)

    def keys(self, key: Callable[[LogEnvelope], str | None]) -> set[str | None]:
        """Collect the keys of all that waits."""
        return {key(small.envelope) for small in self._waiting}

    def waiting(self) -> Sequence[SmallEnvelope]:
        """Give all that waits, and let it wait on."""
        return tuple(self._waiting)

    def take(
        self,
        key: Callable[[LogEnvelope], str | None],
        in_hand: Callable[[str | None], bool] = lambda _: False,
        takers: int = 1,
        most: int = MOST_ENVELOPES,
    ) -> list[SmallEnvelope]:
        """Take the next bundle.

        Args:
            key: the key of an envelope that goes in no bundle with another of its key; None for one without.
            in_hand: whether the envelopes of a key stay, as another taker has one of them.
            takers: so many share what waits.
            most: no more than this.
        """
        most = min(most, self.size.envelopes, self._share(key, takers))
        taken: list[SmallEnvelope] = []
        keys: set[str] = set()
        passed: deque[SmallEnvelope] = deque()
        while self._waiting and len(taken) < most:
            of_next = key(self._waiting[0].envelope)
            if of_next in keys:
                break
            if of_next is not None and in_hand(of_next):
                passed.append(self._waiting.popleft())
                continue
            if of_next is not None:
                keys.add(of_next)
            taken.append(self._waiting.popleft())
        self._waiting.extendleft(reversed(passed))
        self._note_taken(taken)
        return taken

    def _share(self, key: Callable[[LogEnvelope], str | None], takers: int) -> int:
        """Compute how many envelopes leave something for the other takers: none can take an envelope of a taken key."""
        if takers == 1:
            return len(self._waiting)
        keys = self.keys(key)
        to_share = len(self._waiting) if None in keys else len(keys)
        return -(-to_share // takers)

    def take_all(self) -> list[SmallEnvelope]:
        """Take all that waits."""
        taken = list(self._waiting)
        self._waiting.clear()
        self._note_taken(taken)
        return taken

    def _note_taken(self, taken: Sequence[SmallEnvelope]) -> None:
        self._bytes -= sum(small.size for small in taken)
        self._taken.set()
        self._taken = asyncio.Event()
