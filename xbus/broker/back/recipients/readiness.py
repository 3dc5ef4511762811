"""The readiness of recipients: old workers say when they take another event."""

import asyncio
from uuid import UUID


class Readiness:
    """The readiness of one worker.

    Args:
        is_told: whether the worker says itself when it takes another event; otherwise it always does.
    """

    def __init__(self, *, is_told: bool) -> None:
        self._is_told = is_told
        self._at_work = False
        self._last_worked_on: UUID | None = None
        self._ready = asyncio.Event()
        self._ready.set()

    def begin_work(self, envelope_id: UUID | None = None) -> None:
        """Note that the worker gets an event; one of the old kind takes no other until it calls ``ready``.

        Args:
            envelope_id: of which envelope; None for several at once, which none of the old kind gets.
        """
        if self._is_told:
            self._ready.clear()
        self._at_work = True
        self._last_worked_on = envelope_id

    def end_work(self) -> None:
        """Note that the worker's event is over, whatever came of it."""
        self._at_work = False

    def tell(self) -> None:
        """Note that the worker takes another event."""
        self._ready.set()

    def stopped(self) -> None:
        """Note that the worker has nothing open any more: then it need not say that it is ready."""
        if not self._at_work:
            self.tell()

    @property
    def is_ready(self) -> bool:
        """True if the worker takes another event now."""
        return self._ready.is_set()

    async def wait(self) -> None:
        """Wait until the worker takes another event."""
        await self._ready.wait()

    def is_awaited_after(self, envelope_id: UUID) -> bool:
        """Check whether the worker has yet to call ``ready`` after an event of an envelope, its last one."""
        return not self._ready.is_set() and self._last_worked_on == envelope_id
