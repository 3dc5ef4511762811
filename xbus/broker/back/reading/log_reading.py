"""Reads the log from any place on, and waits a while where nothing is there yet."""

import asyncio

from xbus.broker.back.log import LogSlices
from xbus.broker.back.reading.maps import event_map
from xbus.broker.back.reading.options import LogQuestion
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices import LAST_HASH, Place, Slice, Stretch, key_hash, read_start
from xbus.errors import Failed
from xbus.rpc.messages import LogAnswer

ARCHIVE_SECONDS = 10.0
"""Seconds that a call waits for what comes back of an archive. Programs call again after that, and lose nothing."""


class LogReading:
    """Answers questions about the log; it keeps nothing of those who ask.

    Args:
        journal: knows where the log begins and ends.
        slices: reads the log.
    """

    def __init__(self, journal: Journal, slices: LogSlices) -> None:
        self._journal = journal
        self._slices = slices

    async def answer(self, question: LogQuestion) -> LogAnswer:
        """Read what is wanted, or wait for it.

        Raises:
            BadPlace: the log ends before the place at which to begin (``place_beyond_end``).
            JournalUnavailable: the database can't be read now.
        """
        start = await self._journal.read(read_start, question.start)
        found = await self._read(question, start)
        events = [event_map(event) for event in found.events]
        return {"from": list(start), "to": list(found.to), "events": events}

    async def _read(self, question: LogQuestion, place: Place) -> Slice:
        first, last = (0, LAST_HASH) if question.key is None else (key_hash(question.key),) * 2
        until = asyncio.get_running_loop().time() + question.wait
        while True:
            found = await self._slices.read(question.types, [Stretch(first, last, place)], question.bounds)
            place = found.to
            if found.archived and not found.events:
                # An answer with nothing would pass for the end of the log.
                patience = max(until, asyncio.get_running_loop().time() + ARCHIVE_SECONDS)
                if not await self._grows(question.types, found, patience):
                    raise _still_archived(place)
            elif found.events or not await self._grows(question.types, found, until):
                return found

    async def _grows(self, types: frozenset[int], found: Slice, until: float) -> bool:
        """Wait until more may be there; false once the time is over."""
        try:
            async with asyncio.timeout_at(until):
                await self._slices.beyond(types, found.to, is_archived=bool(found.archived))
        except TimeoutError:
            return False
        return True


def _still_archived(place: Place) -> Failed:
    return Failed(
        f"the items at {place} are in an archive, and are being put back",
        "call again; xbus health tells if they can't be put back",
        code="envelope_archived",
    )
