"""Answers libzmq's question who may connect: ZAP 1.0, https://rfc.zeromq.org/spec/27.

libzmq asks once for each connection, before the socket hears anything of it. Nobody connects where nobody answers.
"""

import logging
from collections.abc import Callable

import zmq
from zmq.utils import z85

from xbus.clock import Clock
from xbus.log_throttle import LogThrottle
from xbus.rpc.context import Context, router
from xbus.rpc.drain import Drain
from xbus.rpc.multipart import send

log = logging.getLogger(__name__)

ENDPOINT = "inproc://zeromq.zap.01"
"""The address at which libzmq asks, by the specification."""

_VERSION = b"1.0"
_MECHANISM = b"CURVE"
_LET_IN, _REFUSED = b"200", b"400"

_ENVELOPE_FRAMES = 2
"""Who asks, and an empty frame."""

_REQUEST_FRAMES = 7
"""Version, request id, domain, address, routing id, mechanism, and the peer's public key."""


class Authenticator:
    """Lets the peers in that have a key which is allowed where they come.

    Args:
        context: whose sockets it guards; a context has one authenticator.
        clock: measures how often a refusal is logged.
    """

    def __init__(self, context: Context, clock: Clock) -> None:
        self._allowed: dict[str, Callable[[str], bool]] = {}
        self._refusals = LogThrottle(clock)
        self._socket = router(context)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._drain = Drain(self._socket, self._answer)

    def admit(self, domain: str, allows: Callable[[str], bool]) -> None:
        """Say who may connect.

        Args:
            domain: of the addresses that are meant.
            allows: tells whether a public key may connect there.
        """
        self._allowed[domain] = allows

    def start(self) -> None:
        """Answer from now on; who asked before has waited."""
        self._drain.resume()

    def close(self) -> None:
        """Answer nobody any more: nobody connects."""
        self._drain.pause()
        self._socket.close()

    def _answer(self, frames: list[bytes]) -> None:
        asking, question = frames[:_ENVELOPE_FRAMES], frames[_ENVELOPE_FRAMES:]
        key = self._key(question)
        said = [_LET_IN, b"OK", key.encode(), b""] if key else [_REFUSED, b"this key is not allowed here", b"", b""]
        send(self._socket, [*asking, _VERSION, *question[1:2], *said])

    def _key(self, frames: list[bytes]) -> str:
        """Give the key that may connect; empty where none may."""
        if len(frames) != _REQUEST_FRAMES or frames[0] != _VERSION or frames[5] != _MECHANISM:
            return ""
        _, _, domain, address, _, _, bare = frames
        key = z85.encode(bare).decode("ascii")
        allows = self._allowed.get(domain.decode())
        if allows is not None and allows(key):
            return key
        # By their address, as a stranger may make a key for each try.
        if count := self._refusals.note(address.decode()):
            extra = {
                "action": "key_refused",
                "socket": domain.decode(),
                "peer": address.decode(),
                "key": key,
                "count": count,
            }
            log.warning("a key was refused", extra=extra)
        return ""
