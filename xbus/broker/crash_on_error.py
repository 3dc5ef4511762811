"""Ends the broker when a callback of the event loop fails, outside of any task."""

import asyncio
import logging
from typing import Any, NoReturn

from xbus.errors import XbusError

log = logging.getLogger(__name__)


class CrashOnCallbackError:
    """Takes the place of the loop's exception handler.

    A callback that raises leaves what it was about half done: a reader that reads no more, a caller that is never
    answered. asyncio would only log it. To be made in the running loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[BaseException] = self._loop.create_future()
        self._loop.set_exception_handler(self._note)

    async def watch(self) -> NoReturn:
        """Wait for the first mishap, and raise it: to be run as a task of the broker."""
        raise await self._first

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not _is_fatal(context):
            loop.default_exception_handler(context)
        elif self._first.done():
            log.critical("a callback died: %s", error, exc_info=error, extra={"action": "died"})
        else:
            self._first.set_result(error)  # type: ignore[arg-type]  # a fatal one has an error


def _is_fatal(context: dict[str, Any]) -> bool:
    """Check whether a callback or a task that nobody awaits has died; an unread refusal is no death.

    Nor is a cancellation: raised by the watch it would end the watch alone, and what dies later would pass unseen.
    """
    error = context.get("exception")
    if error is None or isinstance(error, asyncio.CancelledError):
        return False
    return "handle" in context or (isinstance(context.get("future"), asyncio.Task) and not isinstance(error, XbusError))
