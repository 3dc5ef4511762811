"""The next moments of all bots in a heap: whoever waits looks at the first alone; pure."""

import heapq
from collections.abc import Iterable
from datetime import datetime


class Timetable:
    """Bots by the moment at which they are to be looked at next. Each has one moment at the most."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int]] = []
        self._moments: dict[int, datetime] = {}

    def __len__(self) -> int:
        return len(self._moments)

    def put(self, bot_id: int, moment: datetime | None) -> None:
        """Look at a bot at this moment, and at no other; None for never."""
        if moment is None:
            self._moments.pop(bot_id, None)
        elif self._moments.get(bot_id) != moment:
            self._moments[bot_id] = moment
            heapq.heappush(self._heap, (moment, bot_id))

    def retain(self, bot_ids: Iterable[int]) -> None:
        """Forget all other bots."""
        for bot_id in self._moments.keys() - set(bot_ids):
            del self._moments[bot_id]

    @property
    def next(self) -> datetime | None:
        """The moment of the bot that comes first; None without any."""
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: datetime) -> list[int]:
        """Take out the bots whose moment has come."""
        due: list[int] = []
        while (moment := self.next) is not None and moment <= now:
            _, bot_id = heapq.heappop(self._heap)
            del self._moments[bot_id]
            due.append(bot_id)
        return due
