"""The ordering keys of which a role's instances have an envelope just now, so that no other gets the next one."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable


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
