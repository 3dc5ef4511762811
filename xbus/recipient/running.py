"""Runs a recipient: from the configuration of one role to a process that serves until it is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypedDict, Unpack

from xbus.clock import Clock, SystemClock
from xbus.recipient.api import RecipientApi
from xbus.recipient.base import Recipient
from xbus.recipient.calls import Calls
from xbus.recipient.desk import Desk
from xbus.recipient.registration import Registration
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.server import Server

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 134_217_728
ROLL_BACK_SECONDS = 5.0
"""How long the author's code may take to roll back and close, once ``stop_timeout`` is over."""


class ServeOptions(TypedDict, total=False):
    """How a recipient is served; the defaults suit a broker on the same machine.

    Attributes:
        bind: where the recipient listens for the broker, ``*`` for any free port; ``tcp://127.0.0.1:*`` by default.
        advertise: the address that the broker is told, where it differs from ``bind``, as behind ``tcp://0.0.0.0:*``;
            ``{port}`` in it becomes the port that was taken.
        stop_timeout: seconds that open envelopes get to come to their end when the recipient stops; 10 by default.
        heartbeat_seconds: how often the broker is asked whether it still knows the recipient; 5 by default.
        clock: tells the time.
    """

    bind: str
    advertise: str
    stop_timeout: float
    heartbeat_seconds: float
    clock: Clock


def run(
    recipient: Recipient | type[Recipient], back_url: str, login: str, password: str, **options: Unpack[ServeOptions]
) -> None:
    """Serve a recipient until SIGTERM or SIGINT; then finish the open envelopes, log out and return::

        run(Clients, "tcp://127.0.0.1:4891", "consumer_role", "password")

    To be called in the main thread.

    Args:
        recipient: a worker or consumer, or its class.
        back_url: the back socket of the bus, such as ``tcp://127.0.0.1:4891``.
        login: the role's login.
        password: the role's password.
        **options: see ``ServeOptions``.

    Raises:
        Refused: login or password are wrong (``login_refused``).
        ConfigurationError: an address can't be used.
    """
    asyncio.run(_until_signal(recipient, back_url, login, password, options))


async def _until_signal(
    recipient: Recipient | type[Recipient], back_url: str, login: str, password: str, options: ServeOptions
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(recipient, back_url, login, password, stop, **options)


async def serve(
    recipient: Recipient | type[Recipient],
    back_url: str,
    login: str,
    password: str,
    stop: asyncio.Event,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve a recipient until ``stop`` is set; see ``run``."""
    async with AsyncExitStack() as exit_stack:
        service = _Service(recipient, back_url, login, password, options, exit_stack)
        await service.start()
        await _first_of(service.registration.keep(), stop.wait())
        await service.stop()


class _Service:
    """The parts of a running recipient, put together; what is opened is closed by ``exit_stack``."""

    def __init__(
        self,
        recipient: Recipient | type[Recipient],
        back_url: str,
        login: str,
        password: str,
        options: ServeOptions,
        exit_stack: AsyncExitStack,
    ) -> None:
        author = recipient() if isinstance(recipient, type) else recipient
        clock = options.get("clock") or SystemClock()
        self._stop_timeout = options.get("stop_timeout", 10.0)
        context = new_context()
        exit_stack.callback(context.destroy)
        desk = Desk(f"{login} author")
        exit_stack.callback(desk.close)
        self._desk = desk
        self._calls = Calls(author, desk)
        self._api = RecipientApi(author, self._calls, desk, clock, self._ready_again)
        self._server = Server(
            context, Dispatch(self._api), name=f"recipient {login}", max_message_bytes=MAX_MESSAGE_BYTES, clock=clock
        )
        exit_stack.callback(self._server.close)
        endpoint = self._server.bind(options.get("bind", "tcp://127.0.0.1:*"))
        client = Client(context, name=back_url, clock=clock, on_lost=self._connection_lost)
        exit_stack.callback(client.close)
        client.connect(back_url)
        self._tasks: set[asyncio.Task[None]] = set()
        self.registration = Registration(
            client,
            login,
            password,
            options.get("advertise", endpoint).replace("{port}", endpoint.rpartition(":")[2]),
            heartbeat_seconds=options.get("heartbeat_seconds", 5.0),
            before_registering=self._api.roll_back_all,
            on_logged_in=self._logged_in,
        )

    async def start(self) -> None:
        """Let the author open what is needed, then serve."""
        await self._desk.give(self._calls.start)
        self._server.start()

    async def stop(self) -> None:
        """Finish what is open, within the time given, and go."""
        logger.info("stopping", extra={"action": "recipient_stopping"})
        self._api.is_closing = True
        if not await _within(self._stop_timeout, self._api.idle.wait()):
            logger.warning("envelopes still open, rolling back", extra={"action": "recipient_stop_timeout"})
        await self.registration.log_out()
        if not await _within(ROLL_BACK_SECONDS, self._close_author()):
            logger.error("the recipient's code does not return", extra={"action": "recipient_hangs"})

    async def _close_author(self) -> None:
        await self._api.roll_back_all()
        await self._desk.give(self._calls.stop)

    def _logged_in(self, answer: dict[str, Any]) -> None:
        self._api.max_batch_bytes = answer["max_batch_bytes"]

    def _connection_lost(self) -> None:
        self.registration.connection_lost()

    def _ready_again(self) -> None:
        task = asyncio.create_task(self.registration.ready(), name="recipient says that it is ready")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _within(seconds: float, work: Coroutine[Any, Any, Any]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


async def _first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first to end, raise what it raised, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
