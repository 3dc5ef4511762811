"""The broker calls over the connection that the recipient made."""

import secrets

from xbus.errors import Refused
from xbus.recipient.ways.way import CallBack
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.exchange import Channels
from xbus.rpc.messages import ServingLimits
from xbus.rpc.shapes import AnswerReader

CHANNEL_BYTES = 16
"""Bytes of a channel: enough that nobody can guess one."""

_SERVED = AnswerReader("xbus.serve", ServingLimits)


class OwnConnection:
    """The broker calls over the connection that the recipient has made to the back. No port is opened.

    Args:
        channels: of that connection.
        dispatch: the verbs that the broker calls.
    """

    name = "own connection"
    outlives_connections = True

    def __init__(self, channels: Channels, dispatch: Dispatch) -> None:
        self._channels = channels
        self._dispatch = dispatch
        self.caller = b""

    @property
    def is_open(self) -> bool:
        """Check whether the connection of the registration is still there."""
        return self._channels.is_open(self.caller)

    def expect(self, token_hash: bytes) -> None:
        """Do nothing: the broker alone knows the channel."""

    async def register(self, call: CallBack) -> ServingLimits:
        """Open a new channel, and have the broker call by it."""
        self.close()
        # Only one channel is open: each call that is carried out comes by it.
        self.caller = secrets.token_bytes(CHANNEL_BYTES)
        self._channels.open(self.caller, self._dispatch)
        try:
            return _SERVED.read(await call("xbus.serve", self.caller))
        except Refused as refusal:
            if refusal.code != "unknown_method":
                raise
            raise Refused(
                "the broker is too old to call a recipient over the recipient's own connection",
                "upgrade the broker, or let the recipient listen: bind=, on the command line --bind",
                code=refusal.code,
            ) from refusal

    def start(self) -> None:
        """Do nothing: the broker calls only after the registration."""

    def close(self) -> None:
        """Refuse what the broker still sends."""
        self._channels.close(self.caller)
