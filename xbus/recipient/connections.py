"""By which of its connections the broker may call a recipient; pure."""

from collections import deque

from xbus.errors import Failed

NOBODY = b"nobody"
"""No connection's name: those that libzmq gives begin with a zero."""

MAX_INTRODUCED = 100
"""How many connections are remembered that have asked for the metadata and for nothing else."""


class Connections:
    """Lets the broker's newest connection call, and no other.

    What it sent by an earlier one may still be on its way: mixed with the next attempt it would make events begin
    twice, or items come twice. So with its first call about an envelope a connection by which somebody has asked for
    the metadata takes the place of the one before.
    """

    def __init__(self) -> None:
        self._current = b""
        self._introduced: deque[bytes] = deque(maxlen=MAX_INTRODUCED)

    def introduce(self, caller: bytes) -> None:
        """Note that somebody has asked for the metadata by a connection."""
        if caller != self._current:
            self._introduced.append(caller)

    def check(self, caller: bytes) -> bool:
        """Let a call about an envelope pass.

        Returns:
            Whether the connection has just taken the place of another: what that has left open is to be rolled back.

        Raises:
            Failed: connection_superseded.
        """
        if caller in self._introduced:
            while self._introduced.popleft() != caller:
                pass
            self._current = caller
            return True
        if self._current not in (b"", caller):
            raise Failed("the broker has connected anew", "call by the new connection", code="connection_superseded")
        return False

    def close(self) -> None:
        """Turn away what the broker still sends by the connection that it has: a new one is to come."""
        if self._current:
            self._current = NOBODY
