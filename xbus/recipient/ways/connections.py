"""The connection by which the broker may call: the newest."""

from collections import deque

from xbus.errors import Failed

NOBODY = b"nobody"
"""No connection's name: those that libzmq gives begin with a zero."""

MAX_INTRODUCED = 100
"""The most connections to remember that have asked for the metadata and for nothing else."""


class Connections:
    """Lets the newest connection of the broker that was asked for call, and no other.

    What it sent by an earlier one may still be on its way: mixed with the next attempt it would make events begin
    twice, or items come twice. So with its first call about an envelope a connection by which somebody has asked for
    the metadata takes the place of the one before.

    A broker that comes without having been asked is turned away: it may run on a copy of the journal, and would take
    this recipient away from the live one. A live one that was started anew forgets nobody: the next heartbeat tells
    that it has lost the connection, and the recipient registers anew.
    """

    def __init__(self) -> None:
        self._current = b""
        self._introduced: deque[bytes] = deque(maxlen=MAX_INTRODUCED)
        self._is_registered = False

    def introduce(self, caller: bytes) -> None:
        """Note that somebody has asked for the metadata by a connection.

        Raises:
            Failed: not_asked_for, as this recipient is registered already.
        """
        if caller == self._current or caller in self._introduced:
            return
        if self._is_registered:
            raise Failed("this recipient is registered already", "it registers anew by itself", code="not_asked_for")
        self._introduced.append(caller)

    def registered(self) -> None:
        """Expect no other broker from now on: the one that was asked has come."""
        self._is_registered = True

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
        self._is_registered = False
        if self._current:
            self._current = NOBODY
