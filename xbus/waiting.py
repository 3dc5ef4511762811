"""Tells why a program waits: one warning for each wait, not one for each try."""

import logging
import math
from collections.abc import Callable

from xbus.ending import printable
from xbus.errors import XbusError

PASSING_CODES = frozenset({"connection_lost", "slow_down"})
"""Codes of failures that mostly pass within moments: a broker that restarts, a limit that is met for a second."""

GRACE_SECONDS = 5.0
"""Seconds before a wait with such a code is told. Fewer tell waits that nobody would have noticed."""


class WaitLog:
    """Logs one wait: its cause as a warning, as soon as the cause is known, and its end.

    The cause is in the sentence, as a program without a log of its own shows no more than that. Further tries with the
    same cause are logged as INFO.

    Args:
        logger: the logger of the waiting program's part.
        action: names the wait in the log.
        now: the time in seconds, from any start.
    """

    def __init__(self, logger: logging.Logger, action: str, now: Callable[[], float]) -> None:
        self._logger = logger
        self._action = action
        self._now = now
        self._since: float | None = None
        self._shown: tuple[str, str] | None = None

    def waits(self, error: XbusError, seconds: float = math.inf) -> None:
        """Note a try that failed.

        Args:
            error: the failure.
            seconds: how long the program insists; infinite where it does so for ever.
        """
        now = self._now()
        self._since = now if self._since is None else self._since
        cause = error.code, error.cause
        is_early = error.code in PASSING_CODES and now - self._since < GRACE_SECONDS
        level = logging.INFO if is_early or cause == self._shown else logging.WARNING
        if not is_early:
            self._shown = cause
        limit = f" for up to {seconds:g} s" if math.isfinite(seconds) else ""
        extra = {"action": self._action, "code": error.code}
        self._logger.log(level, "waiting%s: %s", limit, printable(str(error)), extra=extra)

    def ends(self) -> None:
        """Note a success."""
        if self._shown is not None:
            self._logger.info("the wait is over", extra={"action": self._action})
        self._since = self._shown = None
