"""Keeps a recipient registered: logs in, registers, and does both again when the broker has forgotten it."""

import asyncio
import logging
from typing import NoReturn

from xbus.backoff import Backoff
from xbus.clock import Clock
from xbus.errors import CallError, Failed, Refused
from xbus.recipient.api import RecipientApi
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.messages import BackLogin, Registered
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer of the broker. For a registration the broker first calls back here."""

FAREWELL_SECONDS = 2.0
"""Seconds to wait for the answer to a logout."""

FINAL = ("login_refused", "displaced", "wrong_kind")
"""After a refusal with one of these codes it is of no use to register again."""

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0

_LOGIN = AnswerReader("xbus.login", BackLogin)
_HEARTBEAT = AnswerReader("xbus.heartbeat", Registered)


class Registration:
    """Keeps a role registered at the broker.

    Args:
        context: for the connection to the back.
        back_url: the back socket of the bus.
        login: the role's login.
        password: the role's password.
        heartbeat_seconds: seconds between heartbeats, unless the broker wants them more often. A heartbeat reports the
            work in progress, and asks whether the broker still knows us.
        clock: tells the time.
    """

    def __init__(
        self, context: Context, back_url: str, login: str, password: str, heartbeat_seconds: float, clock: Clock
    ) -> None:
        self._login = login
        self._password = password
        self._heartbeat_seconds = heartbeat_seconds
        self._wanted_seconds = 0.0
        self._token = ""
        self._doubt = asyncio.Event()
        # A broker that went away is asked at once, when it is back, whether it still knows us.
        self._client = Client(context, name=back_url, clock=clock, on_lost=self._doubt.set)
        self._client.connect(back_url)

    async def keep(self, uri: str, api: RecipientApi) -> NoReturn:
        """Keep the role registered, for ever.

        Args:
            uri: where the broker reaches this recipient.
            api: what it finds there. It rolls back what is open before each registration, by which the broker gives
                that up.

        Raises:
            Refused: login or password are wrong (``login_refused``), another recipient has taken the role
                (``displaced``), or the role is of a service of the other kind (``wrong_kind``).
        """
        backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        while True:
            try:
                await self._register(uri, api)
                backoff.reset()
                await self._until_forgotten(api)
                logger.warning("the broker has forgotten us", extra={"action": "recipient_forgotten"})
            except CallError as error:
                if error.code in FINAL:
                    logger.error(
                        "the recipient ends", extra={"action": f"recipient_{error.code}", "cause": error.cause}
                    )
                    raise
                # The cause is in the sentence, as a program that has set up no log shows no more than that.
                extra = {"action": "recipient_not_registered", "code": error.code}
                logger.warning("not registered, trying again: %s", error, extra=extra)
                await asyncio.sleep(backoff.next())

    def tell_ready(self) -> None:
        """Call ``ready`` at a broker that does not send batches: the worker may get another event."""
        self.call("xbus.ready").add_done_callback(_log_failure)

    async def log_out(self) -> None:
        """Log out, if a session exists; a broker that does not answer will notice by itself."""
        if self._token:
            logout = self._client.call("xbus.logout", self._token, timeout=FAREWELL_SECONDS)
            logout.add_done_callback(_log_failure)
            await asyncio.wait([logout])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    async def _register(self, uri: str, api: RecipientApi) -> None:
        called = self._client.call("xbus.login", self._login, self._password, timeout=ANSWER_SECONDS)
        answer = _LOGIN.read(await called)
        self._token = answer["token"]
        api.max_batch_bytes = answer["max_batch_bytes"]
        self._wanted_seconds = answer.get("heartbeat", 0)
        await api.roll_back_all()
        await self.call("xbus.register_node", uri)
        api.registered()
        logger.info("registered", extra={"action": "recipient_registered", "uri": uri})

    async def _until_forgotten(self, api: RecipientApi) -> None:
        is_registered = True
        while is_registered:
            await self._pause()
            try:
                is_registered = _HEARTBEAT.read(await self._heartbeat(api))["registered"]
            except Refused as refusal:
                if refusal.code in FINAL:
                    raise
                return
            except Failed as failure:
                # Whether the broker forgot us is not known yet; the next heartbeat will tell.
                logger.info("no answer to heartbeat", extra={"action": "heartbeat_unanswered", "code": failure.code})

    def _heartbeat(self, api: RecipientApi) -> "asyncio.Future[Value]":
        # A broker of before takes no second argument; it does not say either that it wants heartbeats.
        return self.call("xbus.heartbeat", api.work()) if self._wanted_seconds else self.call("xbus.heartbeat")

    async def _pause(self) -> None:
        seconds = min(self._heartbeat_seconds, self._wanted_seconds or self._heartbeat_seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._doubt.wait()
        except TimeoutError:
            pass  # nothing happened; ask all the same
        self._doubt.clear()

    def call(self, name: str, *arguments: object) -> "asyncio.Future[Value]":
        """Call the back with the token that we have now."""
        return self._client.call(name, self._token, *arguments, timeout=ANSWER_SECONDS)


def _log_failure(call: "asyncio.Future[Value]") -> None:
    error = None if call.cancelled() else call.exception()
    if isinstance(error, CallError):
        extra = {"action": "recipient_call_failed", "code": error.code, "cause": error.cause}
        logger.warning("a call to the broker failed", extra=extra)
