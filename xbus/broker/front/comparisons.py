"""What another session sends again of an open envelope with a key: compared, before the envelope may be sealed."""

import asyncio
from collections.abc import Hashable

from xbus.errors import Refused, XbusError
from xbus.rpc.later import Later


class Comparisons:
    """Keeps track of comparisons that go on, and of what went wrong.

    Who sends ahead has sent the seal before it hears that something was refused: that must not be sealed as if it had
    been sent so.
    """

    def __init__(self) -> None:
        self.pending: set[asyncio.Future[int]] = set()
        self._error: XbusError | None = None
        self._round = 0
        self._refused: dict[Hashable, Refused] = {}

    def add(self, comparing: "asyncio.Future[int]") -> None:
        """Follow one; whoever could not be compared before is compared again by the call that repeats it."""
        if not isinstance(self._error, Refused):
            self._error = None
        number = self._round
        self.pending.add(comparing)
        comparing.add_done_callback(lambda done: self._compared(number, done))

    def begin_anew(self) -> None:
        """Another session sends from the beginning: what an earlier one sent says nothing about it."""
        self._round += 1
        self._error = None
        self._refused.clear()

    def refused(self, what: Hashable, refusal: Refused) -> None:
        """Take note that of something this session sent other than what is there."""
        self._refused[what] = refusal

    def agreed(self, what: Hashable) -> None:
        """Take note that it has sent the same now."""
        self._refused.pop(what, None)

    def check(self) -> None:
        """Let the seal pass.

        Raises:
            XbusError: what was said of something that went wrong, such as content_differs.
        """
        error = next(iter(self._refused.values()), self._error)
        if error is not None:
            raise error

    def _compared(self, number: int, comparing: "asyncio.Future[int]") -> None:
        self.pending.discard(comparing)
        error = None if comparing.cancelled() else comparing.exception()
        if isinstance(error, XbusError) and number == self._round:
            self._error = error


async def both(same: "asyncio.Future[int]", rest: Later[int]) -> int:
    """The answer to a batch of which the first part is compared, and the rest taken."""
    await same
    return await rest
