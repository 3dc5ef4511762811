"""Keeps a recipient registered: logs in, registers, and does both again when the broker has forgotten it."""

import asyncio
import logging
from typing import NoReturn

from xbus.backoff import Backoff
from xbus.clock import Clock
from xbus.errors import CallError, Failed, Refused
from xbus.ids import token_hash
from xbus.pause_notes import PauseNotes
from xbus.recipient.api import RecipientApi
from xbus.recipient.ways import MAX_MESSAGE_BYTES, BrokerWay
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import BackLogin, Registered, ServingLimits
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer of the broker. For a registration the broker first calls back here."""

KEEPALIVE_SECONDS = 5
"""Seconds between signs of life of the connection: a cable that was pulled sends no goodbye. They are TCP's, as a large
batch on a slow line would keep those of ZMTP waiting for too long."""

FAREWELL_SECONDS = 2.0
"""Seconds to wait for the answer to a logout."""

FINAL = ("login_refused", "displaced", "wrong_kind", "role_reads", "role_runs_bots", "unknown_method")
"""After a refusal with one of these codes it is of no use to register again."""

SESSION_UNKNOWN = "session_unknown"

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

    Attributes:
        client: the connection, by whose channels the broker may call.
    """

    def __init__(
        self, context: Context, back_url: str, login: str, password: str, heartbeat_seconds: float, clock: Clock
    ) -> None:
        self._login = login
        self._password = password
        self._heartbeat_seconds = heartbeat_seconds
        self._wanted_seconds = 0.0
        self._token = ""
        self._stands_by = False
        self._pause_notes = PauseNotes(logger, "recipient")
        self._doubt = asyncio.Event()
        # A broker that went away is asked at once, when it is back, whether it still knows us.
        self.client = Client(
            context,
            name=back_url,
            clock=clock,
            max_message_bytes=MAX_MESSAGE_BYTES,
            on_lost=self._doubt.set,
            life_signs=LifeSigns(keepalive_seconds=KEEPALIVE_SECONDS),
        )
        self.client.connect(back_url)

    async def keep(self, way: BrokerWay, api: RecipientApi) -> NoReturn:
        """Keep the role registered, for ever.

        Args:
            way: how the broker reaches this recipient.
            api: what it finds there. It rolls back what is open before each registration, by which the broker gives
                that up.

        Raises:
            Refused: login or password are wrong (``login_refused``), another recipient has taken the role
                (``displaced``), the role is of a service of the other kind (``wrong_kind``), of a reader
                (``role_reads``) or of runners (``role_runs_bots``), or the broker is too old for the way
                (``unknown_method``).
        """
        backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        while True:
            try:
                await self._register(way, api)
                backoff.reset()
                await self._until_forgotten(way, api)
                cause = "the broker has forgotten us" if way.is_open else "the connection to the broker was lost"
                logger.warning("%s, registering anew", cause, extra={"action": "recipient_forgotten"})
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
            logout = self.client.call("xbus.logout", self._token, timeout=FAREWELL_SECONDS)
            logout.add_done_callback(_log_failure)
            await asyncio.wait([logout])

    async def _register(self, way: BrokerWay, api: RecipientApi) -> None:
        if not (self._token and way.outlives_connections):
            await self._log_in(way, api)
        await api.roll_back_all()
        try:
            limits = await way.register(self.call)
        except Refused as refusal:
            if refusal.code != SESSION_UNKNOWN:
                raise
            await self._log_in(way, api)
            limits = await way.register(self.call)
        if limits is not None:
            self._note_limits(api, limits)
        api.registered()
        self._stands_by = False
        logger.info("registered", extra={"action": "recipient_registered", "way": way.name})

    async def _log_in(self, way: BrokerWay, api: RecipientApi) -> None:
        called = self.client.call("xbus.login", self._login, self._password, timeout=ANSWER_SECONDS)
        answer = _LOGIN.read(await called)
        self._token = answer["token"]
        if answer.get("proof", False):
            way.expect(token_hash(self._token))
        self._note_limits(api, answer)

    def _note_limits(self, api: RecipientApi, answer: BackLogin | ServingLimits) -> None:
        api.max_batch_bytes = answer["max_batch_bytes"]
        self._wanted_seconds = answer.get("heartbeat", 0)

    async def _until_forgotten(self, way: BrokerWay, api: RecipientApi) -> None:
        is_registered = True
        while is_registered:
            await self._pause()
            if not way.is_open:
                return
            try:
                answer = _HEARTBEAT.read(await self._heartbeat(api))
                is_registered = answer["registered"]
                self._note_standby(answer.get("standby", False))
                self._pause_notes.told(answer.get("paused"))
            except Refused as refusal:
                if refusal.code in FINAL:
                    raise
                return
            except Failed as failure:
                # Whether the broker forgot us is not known yet; the next heartbeat will tell.
                logger.info("no answer to heartbeat", extra={"action": "heartbeat_unanswered", "code": failure.code})

    def _note_standby(self, stands_by: bool) -> None:
        """Log when the recipient begins to wait for a place of its role, and when it takes over."""
        if stands_by != self._stands_by:
            self._stands_by = stands_by
            said = "standing by: all places of the role are taken" if stands_by else "taking over: the role has a place"
            logger.info(said, extra={"action": "recipient_stands_by" if stands_by else "recipient_takes_over"})

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
        return self.client.call(name, self._token, *arguments, timeout=ANSWER_SECONDS)


def _log_failure(call: "asyncio.Future[Value]") -> None:
    error = None if call.cancelled() else call.exception()
    if isinstance(error, CallError):
        extra = {"action": "recipient_call_failed", "code": error.code, "cause": error.cause}
        logger.warning("a call to the broker failed", extra=extra)
