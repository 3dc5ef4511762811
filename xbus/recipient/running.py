"""Runs a recipient: opens what it needs, keeps it registered, and ends it in order when it is told to stop.

``run`` is a whole program, ``serve`` a part of one that does something else beside.
"""

import asyncio
import inspect
import logging
import math
import signal
import traceback
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypedDict, Unpack

from xbus import ending
from xbus.backoff import Backoff, Patience
from xbus.clock import Clock, SystemClock
from xbus.ending import NOT_NOW, exit_code
from xbus.errors import ConfigurationError, Failed, XbusError
from xbus.recipient.base import Recipient
from xbus.recipient.calls import CODE_FAILED
from xbus.recipient.registration import Registration
from xbus.recipient.service import SERVICE_WAITS, RecipientService, ServiceWaits
from xbus.rpc.context import new_context
from xbus.rpc.curve import complete_login, parse_addresses
from xbus.system import collector, memory

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
"""Seconds from the first ``on_start`` that failed to the second. Shorter is ready sooner and writes more lines."""

LONGEST_DELAY_SECONDS = 30.0

NOT_STARTED = "recipient_not_started"

FAULTS = (
    *(ImportError, SyntaxError, NameError, NotImplementedError, AttributeError, TypeError, AssertionError, KeyError),
    *(RecursionError, PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError),
)
"""Exceptions of a program that is wrong, or lacks a variable, a file or a right: each further start would raise them,
too. Errors of networks and databases, time-outs and a ``ValueError`` may pass: another side may have caused them."""

FAULTS_OF_LIBRARIES = {"sqlalchemy.exc.ArgumentError"}
"""The same, of libraries that the client works without: an address of no known database, or a missing driver."""


def make(recipient: Recipient | type[Recipient]) -> Recipient:
    """Make an object of the author's class; an object is given back as it is.

    Raises:
        XbusError: as the author's code raised it.
        ConfigurationError: the class wants arguments, or its code has a fault (``recipient_not_started``).
        Failed: its code failed by an error that may pass (``recipient_not_started``).
    """
    if not isinstance(recipient, type):
        return recipient
    try:
        inspect.signature(recipient).bind()
    except TypeError as error:
        raise ConfigurationError(
            f"the class {recipient.__name__} can't be made without arguments ({error})",
            "give its arguments defaults, or hand an object to xbus.recipient.run in a program of your own",
            code=NOT_STARTED,
        ) from error
    try:
        return recipient()
    except XbusError:
        raise
    except Exception as error:
        raise _not_started(f"the class {recipient.__name__} failed: {describe(error)}", _is_fault(error)) from error


async def start(service: RecipientService, seconds: float, backoff: Backoff | None = None) -> None:
    """Run ``on_start`` until it succeeds.

    Args:
        service: bound to its address.
        seconds: how long to repeat ``on_start`` while it raises.
        backoff: the delays between the tries.

    Raises:
        XbusError: as the author's code raised it: one that says that no repeat helps.
        ConfigurationError: the author's program has a fault, or ended itself (``recipient_not_started``).
        Failed: the time is over (``recipient_not_started``).
    """
    now = asyncio.get_running_loop().time
    patience = Patience(seconds, backoff or Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), now)
    while True:
        try:
            await service.start()
            return
        except Exception as error:
            if _is_final(error):
                raise
            has_ended = isinstance(error, Failed) and error.code == CODE_FAILED
            cause = str(error) if has_ended else describe(error)
            if has_ended or _is_fault(error):
                raise _not_started(f"on_start failed: {cause}", is_fault=True) from error
            delay = patience.failed()
            if delay is None:
                raise _not_started(f"on_start failed: {cause}", is_fault=False) from error
            # The cause is in the sentence, as a program that has set up no log shows no more than that.
            extra = {"action": NOT_STARTED, "seconds": delay}
            logger.warning("on_start failed, trying again in %g s: %s", delay, cause, extra=extra)
            logger.debug("on_start failed", exc_info=error, extra={"action": NOT_STARTED})
            await asyncio.sleep(delay)


def _not_started(cause: str, is_fault: bool) -> XbusError:
    if is_fault:
        return ConfigurationError(
            cause, "correct the program, or give it what it lacks, then start again", code=NOT_STARTED
        )
    return Failed(cause, "correct the cause, then start again", code=NOT_STARTED)


def _is_fault(error: Exception) -> bool:
    """Check whether the program is wrong or lacks something, so that only a person can mend it."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return False  # It is of a connection, such as one to a socket that does not exist yet.
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__}
    return isinstance(error, FAULTS) or not FAULTS_OF_LIBRARIES.isdisjoint(names)


def _is_final(error: Exception) -> bool:
    """Check whether the author says by an error of the bus that no repeat helps."""
    return isinstance(error, XbusError) and exit_code(error) != NOT_NOW


def describe(error: Exception) -> str:
    """Describe an exception of the author's code in one line, with the place where it was raised."""
    sentence = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    frames = traceback.extract_tb(error.__traceback__)
    # The last frame that is not in an installed library is most likely the author's own.
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.name != "_outcome"]
    place = (own or frames)[-1]
    return f"{sentence} ({Path(place.filename).name}, line {place.lineno})"


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
        exit_stack.callback(registration.client.close)
        service = RecipientService(
            author, login, clock, registration.tell_ready, registration.call, waits, registration.client.turn
        )
        exit_stack.callback(service.close)
        service.choose_way(registration.client.channels, context, parse_addresses(back_url)[0], bind, advertise)

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
