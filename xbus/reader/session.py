"""A reading program's session at the back: logged in, and made anew where the back has forgotten it."""

import asyncio
import logging
from typing import Protocol

from xbus.backoff import Backoff, Patience
from xbus.clock import Clock
from xbus.errors import CallError, Failed, Refused
from xbus.reader.options import ReaderOptions
from xbus.rpc.codec import Value
from xbus.rpc.messages import BackLogin
from xbus.rpc.shapes import AnswerReader
from xbus.waiting import WaitLog

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0

FAREWELL_SECONDS = 2.0
"""Seconds to wait for the answers to the last calls. Fewer end a program sooner whose bus is away."""

_LOGIN = AnswerReader("xbus.login", BackLogin)


class VerbCaller(Protocol):
    """Calls the verbs of the back; a ``Client`` does."""

    def call(self, method: str, *args: object, timeout: float | None = None) -> "asyncio.Future[Value]":
        """Call a verb; the future gets its answer or its error."""


class ReaderSession:
    """Puts the token into calls, and repeats calls that failed.

    Each call may be repeated: the back gives the same batch again, and settles a place once.

    Args:
        client: the connection to the back; it reconnects by itself.
        login: the login of a role of the reader.
        password: its password.
        options: how long to insist.
        clock: tells the time.
    """

    def __init__(self, client: VerbCaller, login: str, password: str, options: ReaderOptions, clock: Clock) -> None:
        self._client = client
        self._login = login
        self._password = password
        self._options = options
        self._clock = clock
        self._token = ""
        self._logging_in = asyncio.Lock()
        self._log = WaitLog(logger, "reader_waits", clock.monotonic)

    async def open(self) -> None:
        """Log in, and insist while the back does not answer.

        Raises:
            Refused: login or password are wrong (``login_refused``).
            Failed: nothing answered within ``open_seconds``.
        """
        patience = self._patience(self._options.open_seconds)
        patience.begin()
        while True:
            try:
                await self._log_in("")
                return self._log.ends()
            except Failed as failure:
                await self._pause(patience, failure)

    async def call(self, verb: str, *arguments: object, wait: float = 0.0) -> Value:
        """Call a verb until it is answered.

        Args:
            wait: seconds that the back itself may wait.

        Raises:
            Refused: the back refuses the call; the broker is too old for readers (``readers_unsupported``).
            Failed: nothing answered within ``retry_seconds``.
        """
        patience = self._patience(self._options.retry_seconds)
        while True:
            token = self._token
            try:
                answer = await self._called(verb, token, arguments, wait + self._options.answer_seconds)
                self._log.ends()
                return answer
            except Failed as failure:
                await self._pause(patience, failure)
            except Refused as refusal:
                if refusal.code == "reader_not_ready":
                    # The bus file has it, and the broker takes it up in a moment.
                    await self._pause(patience, Failed(refusal.cause, refusal.next_step, code=refusal.code))
                elif refusal.code == "session_unknown":
                    await self._log_in_again(token, patience)
                else:
                    raise

    async def say(self, verb: str, *arguments: object) -> None:
        """Call a verb once, as a farewell; a back that does not answer will notice by itself."""
        try:
            await self._called(verb, self._token, arguments, FAREWELL_SECONDS)
        except CallError as error:
            extra = {"action": "reader_farewell_failed", "verb": verb, "code": error.code}
            logger.info("no answer to %s: %s", verb, error, extra=extra)

    async def _called(self, verb: str, token: str, arguments: tuple[object, ...], seconds: float) -> Value:
        try:
            return await self._client.call(verb, token, *arguments, timeout=seconds)
        except Refused as refusal:
            if refusal.code != "unknown_method":
                raise
            raise Refused(
                "the broker is too old for readers",
                "upgrade the broker, or read with a consumer",
                code="readers_unsupported",
            ) from refusal

    async def _log_in_again(self, token: str, patience: Patience) -> None:
        try:
            await self._log_in(token)
        except Failed as failure:
            await self._pause(patience, failure)

    async def _log_in(self, forgotten: str) -> None:
        """Log in, unless another call has done so meanwhile."""
        async with self._logging_in:
            if self._token == forgotten:
                seconds = self._options.answer_seconds
                called = self._client.call("xbus.login", self._login, self._password, timeout=seconds)
                self._token = _LOGIN.read(await called)["token"]

    def _patience(self, seconds: float) -> Patience:
        return Patience(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), self._clock.monotonic)

    async def _pause(self, patience: Patience, failure: Failed) -> None:
        delay = patience.failed()
        if delay is None:
            next_step = failure.next_step or "see whether the bus runs at this address"
            cause = f"{failure.cause}, and each try within {patience.seconds:g} s failed"
            raise type(failure)(cause, next_step, code=failure.code) from failure
        self._log.waits(failure, patience.seconds)
        await asyncio.sleep(delay)
