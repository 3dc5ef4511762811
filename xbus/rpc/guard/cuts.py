"""Why connections are cut off, and the lines of the log that say so."""

import logging

from xbus.clock import Clock
from xbus.log_throttle import LogThrottle

log = logging.getLogger(__name__)

KEY_REVOKED = "key_revoked"
BROKEN_PROTOCOL = "broken_protocol"

_CAUSES = {
    KEY_REVOKED: "as its key is not allowed any more",
    BROKEN_PROTOCOL: "as it does not keep to the protocol, or sends a message of too many frames",
}
_TOO_LARGE = "as it would take too much memory"


class CutLog:
    """Logs the connections that are cut off, once a minute for each address and reason.

    Args:
        name: of the server.
        clock: measures the minute.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._throttle = LogThrottle(clock)

    def note(self, address: str, reason: str) -> None:
        """Note that a connection was cut off."""
        if count := self._throttle.note(f"{reason} {address}"):
            extra = {"action": "connection_cut_off", "code": reason, "peer": address, "count": count}
            log.warning("%s: a connection was cut off, %s", self._name, _CAUSES.get(reason, _TOO_LARGE), extra=extra)
