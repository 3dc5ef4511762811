"""Starts a recipient: repeats the author's ``on_start`` while what it needs, such as a database, is away."""

import asyncio
import inspect
import logging
import traceback
from pathlib import Path

from xbus.backoff import Backoff, Patience
from xbus.ending import NOT_NOW, exit_code
from xbus.errors import ConfigurationError, Failed, XbusError
from xbus.recipient.base import Recipient
from xbus.recipient.calls import CODE_FAILED
from xbus.recipient.service import RecipientService

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
