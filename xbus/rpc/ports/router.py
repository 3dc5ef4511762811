"""Encrypted connections, and those over ipc: libzmq has them, by a ROUTER socket."""

from collections.abc import Callable, Mapping, Sequence

import zmq

from xbus.errors import ProtocolError
from xbus.rpc import multipart
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context, router
from xbus.rpc.curve import KeyPair, serve_encrypted
from xbus.rpc.drain import Drain, bound_endpoint
from xbus.rpc.guard import BROKEN_PROTOCOL, KEY_REVOKED, ConnectionGuard
from xbus.rpc.life_signs import LifeSigns, ask_for_life
from xbus.rpc.ports.port import PeerIsFull, PeerIsGone, PortOwner, bind_error


def _nobody(key: str) -> bool:
    """Let no key in: there is no encrypted address."""
    return False


class RouterPort:
    """Reads and sends the messages of a ROUTER socket, and guards its connections.

    Args:
        owner: whose it is.
        context: of the whole process.
        options: of the socket.
        signs: how soon it notices that a peer is away, or does not say who it is.
    """

    def __init__(
        self, owner: PortOwner, context: Context, options: Mapping[zmq.SocketOption, int], signs: LifeSigns
    ) -> None:
        self._owner = owner
        self._socket = router(context)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        for option, value in options.items():
            self._socket.set(option, value)
        ask_for_life(self._socket, signs)
        self._allows: Callable[[str], bool] = _nobody
        self._drain = Drain(self._socket, self._serve, owner.may_read)
        self._guard = ConnectionGuard(owner.name, self._socket, self._drain, owner.traffic, owner.clock, self._ended)

    def bind(self, address: str, *, is_encrypted: bool) -> str:
        """Open an address; give it with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise bind_error(self._owner.name, address, error, error.errno) from error
        endpoint = bound_endpoint(self._socket)
        self._guard.listens(endpoint, is_encrypted=is_encrypted)
        return endpoint

    def encrypt(self, pair: KeyPair, domain: str, allows: Callable[[str], bool]) -> None:
        """Encrypt what comes to the addresses that are bound from now on.

        Args:
            pair: of the server.
            domain: under which the authenticator knows who may connect.
            allows: tells whether the peer with a public key may be there; asked for each message.
        """
        serve_encrypted(self._socket, pair, domain)
        self._allows = allows

    def cut_off_keys(self) -> None:
        """End the connections of keys that are not allowed any more."""
        self._guard.cut_off_keys(self._allows)

    def start(self) -> None:
        """Begin to read."""
        self._guard.start()
        self._drain.resume()

    def pause(self) -> None:
        """Read nothing until ``resume``; peers have to wait."""
        self._drain.pause()

    def resume(self) -> None:
        """Read again."""
        self._drain.resume()

    def read_all(self) -> None:
        """Read what has come until now, without asking whether it may."""
        self._drain.read_all()

    def check(self) -> None:
        """Look soon for messages to read; to be called after each ``send`` that no message led to."""
        self._drain.check()

    def knows(self, peer: bytes) -> bool:
        """Check whether an id may be that of a connection here: libzmq does not tell."""
        return True

    def address_of(self, peer: bytes) -> str:
        """Give the address of the connection with an id; empty where it is not known any more."""
        return self._guard.address_of(peer)

    def let_in(self, peer: bytes) -> None:
        """Note that the connection with an id has proven who it is."""
        self._guard.let_in(peer)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            PeerIsFull: the peer leaves too much unread.
            PeerIsGone: its connection has ended.
        """
        try:
            multipart.send(self._socket, frames)
        except zmq.Again:
            raise PeerIsFull from None
        except zmq.ZMQError:
            raise PeerIsGone from None
        self._guard.gave(frames)

    def close(self) -> None:
        """Close the socket; libzmq sends what waits for a moment longer."""
        self._drain.pause()
        self._guard.close()
        self._socket.close()

    def _serve(self, frames: list[bytes]) -> None:
        connection = self._guard.took(frames)
        if self._drain.reader.has_more:
            error = ProtocolError(f"a message has more than {multipart.MOST_FRAMES} frames")
            self._owner.on_violation(connection.address, error)
            self._guard.cut_off(connection, BROKEN_PROTOCOL)
        elif connection.key and not self._allows(connection.key):
            # It had connected before its key was taken away, and says its first word only now.
            self._guard.cut_off(connection, KEY_REVOKED)
        else:
            self._owner.serve(connection, frames, sum(map(len, frames)))

    def _ended(self, descriptor: int) -> None:
        self._owner.on_gone(None)
