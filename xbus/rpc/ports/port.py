"""A socket of a server, with its reader, its guard and its way to send."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from xbus.clock import Clock
from xbus.errors import ConfigurationError, ProtocolError
from xbus.rpc import multipart
from xbus.rpc.context import Context, router
from xbus.rpc.curve import KeyPair, serve_encrypted
from xbus.rpc.drain import Drain, bound_endpoint
from xbus.rpc.guard import BROKEN_PROTOCOL, ConnectionGuard, TrafficLimits
from xbus.rpc.ports.plain import PlainWire
from xbus.rpc.ports.zmtp import MessageLimits

_LOOK_SECONDS = 1.0
"""Seconds between looks for peers that do not end their handshake. Fewer notice them sooner and cost wake-ups."""


@dataclass(frozen=True, slots=True)
class PortOwner:
    """The server of a port.

    Args:
        name: for the log.
        clock: measures how often a cut is logged.
        traffic: limits of each connection and of all.
        serve: gets each message, and the port by which it came.
        may_read: asked before each message.
        on_end: called when some connection has ended.
        on_violation: called with the address of a peer that does not keep to the protocol.
    """

    name: str
    clock: Clock
    traffic: TrafficLimits
    serve: "Callable[[Port, list[bytes]], None]"
    may_read: Callable[[], bool]
    on_end: Callable[[], None]
    on_violation: Callable[[str, ProtocolError], None]


class Port:
    """Reads and sends the messages of a socket, and guards its connections.

    Args:
        owner: whose it is.
        socket: with all its options; the port closes it.
        new_wire: makes what speaks the protocol, where libzmq does not.
        handshake_seconds: which the wire gives a peer.
    """

    def __init__(
        self,
        owner: PortOwner,
        socket: "zmq.Socket[bytes]",
        new_wire: "Callable[[Port], PlainWire] | None" = None,
        handshake_seconds: float = 0.0,
    ) -> None:
        self._owner = owner
        self._socket = socket
        self._wire = None if new_wire is None else new_wire(self)
        self._handshake_seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._next_look: asyncio.TimerHandle | None = None
        self.drain = Drain(socket, self._serve, owner.may_read, self._wire)
        self.guard = ConnectionGuard(owner.name, socket, self.drain, owner.traffic, owner.clock, self._ended)

    def bind(self, address: str, *, is_encrypted: bool) -> str:
        """Open an address; give it with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise _bind_error(self._owner.name, address, error) from error
        endpoint = bound_endpoint(self._socket)
        self.guard.listens(endpoint, is_encrypted=is_encrypted)
        return endpoint

    def encrypt(self, pair: KeyPair, domain: str) -> None:
        """Encrypt what comes to the addresses that are bound from now on.

        Args:
            pair: of the server.
            domain: under which the authenticator knows who may connect.
        """
        serve_encrypted(self._socket, pair, domain)

    def start(self) -> None:
        """Begin to read."""
        self.guard.start()
        self.drain.resume()
        if self._wire is not None:
            self._look()

    def knows(self, peer: bytes) -> bool:
        """Check whether an id may be that of a connection here."""
        return self._wire is None or self._wire.knows(peer)

    def send(self, frames: list[bytes]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            zmq.Again: the peer leaves too much unread.
            zmq.ZMQError: ``EHOSTUNREACH``, the peer is gone.
        """
        if self._wire is not None:
            self._wire.send(frames)
        else:
            multipart.send(self._socket, frames)
        self.guard.gave(frames)

    def began(self, peer: bytes, descriptor: int, address: str) -> None:
        """Note a connection of which the wire has heard."""
        self.guard.begin(peer, descriptor, address)

    def has_ended(self, peer: bytes, address: str, error: ProtocolError) -> None:
        """Note that the wire has ended the connection of a peer that does not keep to the protocol."""
        self._owner.on_violation(address, error)
        self.guard.ended_by_us(peer, BROKEN_PROTOCOL)
        self._owner.on_end()

    def broke_protocol(self, peer: bytes, error: ProtocolError) -> None:
        """End the connection of a peer, of which something was just read, that does not keep to the protocol."""
        connection = self.guard.sender(peer)
        self._owner.on_violation(connection.address, error)
        self.guard.cut_off(connection, BROKEN_PROTOCOL)

    def close(self) -> None:
        """Close the socket."""
        if self._next_look is not None:
            self._next_look.cancel()
        self.drain.pause()
        self.guard.close()
        self._socket.close()

    def _serve(self, frames: list[bytes]) -> None:
        self._owner.serve(self, frames)

    def _ended(self, descriptor: int) -> None:
        if self._wire is not None:
            self._wire.ended(descriptor)
        self._owner.on_end()

    def _look(self) -> None:
        assert self._wire is not None
        self._wire.end_silent(self._loop.time() - self._handshake_seconds)
        if not self.drain.can_read:
            self._wire.forget_ended()
        self._next_look = self._loop.call_later(_LOOK_SECONDS, self._look)


def router_port(owner: PortOwner, context: Context, configure: "Callable[[zmq.Socket[bytes]], None]") -> Port:
    """Make a port for encrypted connections, and for those over ipc.

    Args:
        configure: sets the options of the socket.
    """
    socket = router(context)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    configure(socket)
    return Port(owner, socket)


def plain_port(
    owner: PortOwner,
    context: Context,
    configure: "Callable[[zmq.Socket[bytes]], None]",
    frame_bytes: float,
    handshake_seconds: float,
) -> Port:
    """Make a port for plain connections over TCP.

    Args:
        configure: sets the options of the socket.
        frame_bytes: of a frame; whoever sends a larger one is cut off.
        handshake_seconds: within which a peer says who it is.
    """
    socket = context.socket(zmq.STREAM)
    configure(socket)
    limits = MessageLimits(multipart.MOST_FRAMES, frame_bytes, owner.traffic.message)
    now = asyncio.get_running_loop().time

    def new_wire(port: Port) -> PlainWire:
        return PlainWire(socket, limits, now, port)

    return Port(owner, socket, new_wire, handshake_seconds)


def _bind_error(name: str, address: str, error: zmq.ZMQError) -> ConfigurationError:
    if error.errno == errno.EADDRINUSE:
        cause, cure, code = "is in use", "stop what listens there, or configure another port", "address_in_use"
    else:
        cause, cure, code = f"can't be bound ({error})", "write tcp://host:port or ipc://path", "bad_address"
    return ConfigurationError(f"{name}: {address} {cause}", cure, code=code)
