"""Runs a recipient: opens what it needs, keeps it registered, and ends it in order when it is told to stop.

``run`` is a whole program, ``serve`` a part of one that does something else beside.
"""

import asyncio
import math
import signal
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypedDict, Unpack

from xbus import ending
from xbus.clock import Clock, SystemClock
from xbus.recipient.base import Recipient
from xbus.recipient.registration import Registration
from xbus.recipient.service import SERVICE_WAITS, RecipientService, ServiceWaits
from xbus.recipient.starting import make, start
from xbus.rpc.context import new_context
from xbus.rpc.curve import complete_login, parse_address
from xbus.system import collector, memory


class ServeOptions(TypedDict, total=False):
    """The options of a recipient's service; the defaults suit a broker on the same machine.

    Attributes:
        bind: an address, such as ``tcp://127.0.0.1:*``, at which the recipient listens for the broker; ``*`` takes any
            free port. By default it opens no port: the broker calls over the connection that the recipient makes.
            Where ``back_url`` has keys, the address is encrypted, too, and lets in nobody but the broker.
        advertise: the address for the broker, if it differs from ``bind``, as behind ``tcp://0.0.0.0:*``; ``{port}`` in
            it becomes the port that was taken.
        start_timeout: seconds for which ``on_start`` is repeated while it raises; for ever by default. An error of
            ``xbus.errors`` that is neither ``Failed`` nor ``JournalUnavailable`` ends the program at once.
        stop_timeout: seconds that open envelopes have to finish when the recipient stops; 10 by default.
        heartbeat_seconds: seconds between heartbeats, unless the broker wants them more often; 5 by default. A
            heartbeat reports the work in progress, and asks whether the broker still knows the recipient.
        clock: tells the time.
    """

    bind: str
    advertise: str
    start_timeout: float
    stop_timeout: float
    heartbeat_seconds: float
    clock: Clock


def run(
    recipient: Recipient | type[Recipient],
    back_url: str,
    login: str = "",
    password: str = "",
    **options: Unpack[ServeOptions],
) -> None:
    """Serve a recipient until SIGTERM or SIGINT; then finish the open envelopes, log out and return::

        run(Clients, "tcp://127.0.0.1:4891", "consumer_role", "password")

    Call it in the main thread. An error of ``serve`` ends the program with one line on standard error.

    Args:
        recipient: a worker or consumer, or its class.
        back_url: the back socket of the bus, such as ``tcp://127.0.0.1:4891``; or, for an encrypted connection,
            ``xbus://login@host:port?key=...&client_key=FILE``, as docs/keys.md explains.
        login: the role's login; by default that of ``back_url``.
        password: the role's password; by default that of the ``password_file`` in ``back_url``, or of the environment
            variable ``XBUS_PASSWORD``.
        **options: see ``ServeOptions``.

    Raises:
        SystemExit: with 1 if a person must first mend something, with 3 if the same may go well later.
    """
    memory.reuse_large_blocks()
    collector.spare_what_is_here()
    with ending.in_one_line(f"recipient {login}".rstrip()):
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
    *,
    bind: str = "",
    advertise: str = "",
    start_timeout: float = math.inf,
    stop_timeout: float = 10.0,
    heartbeat_seconds: float = 5.0,
    clock: Clock | None = None,
    waits: ServiceWaits = SERVICE_WAITS,
) -> None:
    """Serve a recipient until ``stop`` is set; see ``run`` and ``ServeOptions``.

    Args:
        waits: how long its end may take beside ``stop_timeout``; tests hand in others.

    Raises:
        Refused: login or password are wrong (``login_refused``), a newer recipient has taken the role
            (``displaced``), a worker has the login of a consumer or the other way round (``wrong_kind``), or the broker
            is too old to be served without ``bind`` (``unknown_method``).
        ConfigurationError: an address or a key file can't be used; login or password are missing; or only a person can
            mend what keeps the recipient from its start (``recipient_not_started``).
        Failed: ``on_start`` failed until ``start_timeout`` was over (``recipient_not_started``).
    """
    author = make(recipient)
    clock = clock or SystemClock()
    login, password = complete_login(back_url, login, password)
    with ExitStack() as exit_stack:
        context = new_context()
        exit_stack.callback(context.destroy)
        registration = Registration(context, back_url, login, password, heartbeat_seconds, clock)
        exit_stack.callback(registration.close)
        service = RecipientService(
            author, login, clock, registration.tell_ready, registration.call, waits, registration.turn
        )
        exit_stack.callback(service.close)
        service.choose_way(registration.channels, context, parse_address(back_url), bind, advertise)

        async def start_and_keep() -> None:
            await start(service, start_timeout)
            await registration.keep(service.way, service.api)

        try:
            await _first_of(start_and_keep(), stop.wait())
            await service.finish(stop_timeout)
            await registration.log_out()
        finally:
            await service.stop()


async def _first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first to end, raise its exception if it has one, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
