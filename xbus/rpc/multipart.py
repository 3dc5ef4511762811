"""Messages of several frames, sent and read without waiting.

The work of pyzmq's ``send_multipart`` and ``recv_multipart`` at less than half their cost, which counts as each call
takes five frames in and three out: flags as plain ints, since arithmetic on enums is slow, and ``Frame.more`` in place
of a socket option per frame.
"""

from collections.abc import Sequence

import zmq

from xbus.rpc.codec import Frame

MOST_FRAMES = 16
"""The most frames of a message. A call has five with the caller's id; a proxy may put some before them."""

_DROPPED_AT_ONCE = 50
"""Frames of a message with too many that are dropped in one go. More end it sooner and keep others waiting."""

# The headers of frames by ZMTP 3, https://rfc.zeromq.org/spec/23.
_MOST_SHORT = 255
_SHORT_HEADER = 2
_LONG_HEADER = 9

_SEALED = 33
"""The bytes that CURVE adds to each frame: name, nonce, seal and flags, https://rfc.zeromq.org/spec/26."""

_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


def send(socket: "zmq.Socket[bytes]", frames: Sequence[Frame]) -> None:
    """Send a message.

    Raises:
        zmq.Again: the socket has no room for it now, or no connection.
        zmq.ZMQError: ``EHOSTUNREACH`` of a ROUTER socket that does not know the peer.
    """
    last = len(frames) - 1
    for frame in frames[:last]:
        socket.send(bytes(frame), _MORE)
    socket.send(bytes(frames[last]), _LAST)


def bytes_on_wire(frames: Sequence[Frame], *, is_encrypted: bool = False) -> int:
    """Count the bytes of a message of a ROUTER as on the wire, without the peer's id in front."""
    seal = _SEALED if is_encrypted else 0
    size = -len(frames[0]) - seal - _SHORT_HEADER
    for frame in frames:
        length = len(frame) + seal
        size += length + (_SHORT_HEADER if length <= _MOST_SHORT else _LONG_HEADER)
    return size


class MultipartReader:
    """Reads the messages of a socket.

    Only the first frames of a message with too many are kept. The others are read in portions and dropped.
    """

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        # libzmq knows of a frame whence it came.
        self._first: zmq.Frame | None = None
        self.has_more = False
        """Whether the rest of the last message is still to be dropped."""

    @property
    def sender_address(self) -> str:
        """The address from which the last message came, without the port; over ipc the user and the process.

        It is empty where libzmq knows none: of a peer that speaks ZMTP 1 or 2, and within a process.
        """
        try:
            return "" if self._first is None else str(self._first.get("Peer-Address"))
        except zmq.ZMQError:
            return ""

    @property
    def sender_key(self) -> str:
        """The public key of the peer that sent the last message; empty without encryption."""
        try:
            return "" if self._first is None else str(self._first.get("User-Id"))
        except zmq.ZMQError:
            return ""

    @property
    def sender_descriptor(self) -> int:
        """The descriptor of the connection by which the last message came; -1 without one."""
        try:
            return -1 if self._first is None else int(self._first.get(zmq.SRCFD))
        except zmq.ZMQError:
            # Nor does libzmq know the descriptor of such peers.
            return -1

    def receive(self) -> list[bytes]:
        """Read a message, or drop a portion of what the last one has too much.

        Returns:
            The frames; none where frames were dropped.

        Raises:
            zmq.Again: no message waits.
        """
        if self.has_more:
            self._drop()
            return []
        receive = self._socket.recv
        self._first = frame = receive(_LAST, False)
        frames = [frame.bytes]
        while frame.more:
            if len(frames) == MOST_FRAMES:
                self.has_more = True
                break
            frame = receive(_LAST, False)
            frames.append(frame.bytes)
        return frames

    def _drop(self) -> None:
        for _ in range(_DROPPED_AT_ONCE):
            if not self._socket.recv(_LAST, False).more:
                self.has_more = False
                return
