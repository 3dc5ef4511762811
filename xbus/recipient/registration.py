"""Keeps a recipient registered: logs in, registers, and does both again when the broker has forgotten it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from xbus.errors import CallError, Failed, Refused
from xbus.rpc.client import Client

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""How long an answer of the broker is awaited; to register, the broker first calls back here."""

FAREWELL_SECONDS = 2.0
"""How long the answer to a logout is awaited."""

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0


class Registration:
    """A role's place at the broker.

    Args:
        client: the connection to the back; it reconnects by itself.
        login: the role's login.
        password: the role's password.
        uri: where the broker reaches this recipient.
        heartbeat_seconds: how often the broker is asked whether it still knows us.
        before_registering: awaited first; what the broker had open here is given up by registering.
        on_logged_in: gets the answer of the login, which tells the broker's limits.
    """

    def __init__(
        self,
        client: Client,
        login: str,
        password: str,
        uri: str,
        *,
        heartbeat_seconds: float,
        before_registering: Callable[[], Awaitable[None]],
        on_logged_in: Callable[[dict[str, Any]], None],
    ) -> None:
        self._client = client
        self._login = login
        self._password = password
        self._uri = uri
        self._heartbeat_seconds = heartbeat_seconds
        self._before_registering = before_registering
        self._on_logged_in = on_logged_in
        self._token = ""
        self._doubt = asyncio.Event()

    def connection_lost(self) -> None:
        """The broker went away: ask at once, when it is back, whether it still knows us."""
        self._doubt.set()

    async def keep(self) -> NoReturn:
        """Be registered, for ever.

        Raises:
            Refused: login or password are wrong (``login_refused``).
        """
        delay = FIRST_DELAY_SECONDS
        while True:
            try:
                await self._register()
                delay = FIRST_DELAY_SECONDS
                await self._until_forgotten()
                logger.warning("the broker has forgotten us", extra={"action": "recipient_forgotten"})
            except CallError as error:
                if error.code == "login_refused":
                    raise
                extra = {"action": "recipient_not_registered", "code": error.code, "cause": error.cause}
                logger.warning("not registered, trying again", extra=extra)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY_SECONDS)

    async def ready(self) -> None:
        """Tell a broker that does not send batches that a worker may get another event."""
        await self._attempt("xbus.ready", ANSWER_SECONDS)

    async def log_out(self) -> None:
        """Give the place up, if there is one; a broker that does not answer will notice by itself."""
        if self._token:
            await self._attempt("xbus.logout", FAREWELL_SECONDS)

    async def _register(self) -> None:
        answer = await self._client.call("xbus.login", self._login, self._password, timeout=ANSWER_SECONDS)
        self._token = answer["token"]
        self._on_logged_in(answer)
        await self._before_registering()
        await self._call("xbus.register_node", self._uri)
        logger.info("registered", extra={"action": "recipient_registered", "uri": self._uri})

    async def _until_forgotten(self) -> None:
        is_registered = True
        while is_registered:
            await self._pause()
            try:
                is_registered = (await self._call("xbus.heartbeat"))["registered"]
            except Refused:
                return
            except Failed as failure:
                # Whether the broker forgot us is not known yet; the next heartbeat will tell.
                logger.info("no answer to heartbeat", extra={"action": "heartbeat_unanswered", "code": failure.code})

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                await self._doubt.wait()
        except TimeoutError:
            pass  # nothing happened; ask all the same
        self._doubt.clear()

    async def _attempt(self, name: str, seconds: float) -> None:
        try:
            await self._client.call(name, self._token, timeout=seconds)
        except CallError as error:
            extra = {"action": "recipient_call_failed", "verb": name, "code": error.code}
            logger.warning("a call to the broker failed", extra=extra)

    def _call(self, name: str, *arguments: Any) -> "asyncio.Future[Any]":
        return self._client.call(name, self._token, *arguments, timeout=ANSWER_SECONDS)
