"""The channels that a caller opens on its own connection, so that the other side may call it over that.

Each registration of a recipient has a channel of its own. So no call outlives the registration that it was made for,
whatever of it was still under way or read ahead.
"""

import logging
from collections.abc import Callable

from xbus.clock import Clock
from xbus.errors import Failed, ProtocolError
from xbus.log_throttle import LogThrottle
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.exchange.answering import Answering
from xbus.rpc.exchange.call import Call

log = logging.getLogger(__name__)

SUPERSEDED = "connection_superseded"


class Channels:
    """Answers the calls that come by open channels, and no others.

    Args:
        name: who calls, for the log.
        clock: stamps the replies.
        send: sends the frames of an answer; false if it reached nobody.
    """

    def __init__(self, name: str, clock: Clock, send: Callable[[list[bytes]], bool]) -> None:
        self._name = name
        self._clock = clock
        self._send = send
        self._open: dict[bytes, Answering] = {}
        self._closed: dict[bytes, Answering] = {}
        self._unreadable = LogThrottle(clock)

    @property
    def unreadable(self) -> int:
        """The number of messages that were calls by no channel."""
        return self._unreadable.total

    def open(self, channel: bytes, dispatch: Dispatch) -> None:
        """Let the other side call the verbs of a dispatch table by a new channel."""
        self._open[channel] = Answering(dispatch, name=self._name, clock=self._clock, send=self._send)

    def is_open(self, channel: bytes) -> bool:
        """Check whether calls by a channel are carried out."""
        return channel in self._open

    def close(self, channel: bytes) -> None:
        """Refuse what still comes by a channel, and answer nothing of what came."""
        answering = self._open.pop(channel, None)
        if answering is not None:
            answering.close()
            self._closed[channel] = answering

    def lose(self) -> None:
        """Forget all channels, as the connection is gone: nobody waits for an answer."""
        for answering in self._open.values():
            answering.close()
        self._open.clear()
        self._closed.clear()

    def take(self, frames: list[bytes]) -> None:
        """Carry out a call; one by a channel that is closed gets ``connection_superseded``."""
        channel = frames[0]
        try:
            if channel in self._open:
                self._open[channel].take(Call(channel, frames, sum(map(len, frames))))
            elif channel in self._closed:
                self._closed[channel].refuse(frames, _superseded())
            else:
                raise ProtocolError("a call by a channel that is not open here")
        except ProtocolError as error:
            if count := self._unreadable.note(""):
                extra = {"action": "unreadable_call", "count": count, "cause": error.cause}
                log.info("%s: a call belongs to no registration", self._name, extra=extra)


def _superseded() -> Failed:
    return Failed("the recipient has registered anew", "call by the new channel", code=SUPERSEDED)
