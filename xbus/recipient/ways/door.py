"""The address at which a recipient listens: encrypted where it knows the key of the broker, whom alone it lets in."""

from urllib.parse import quote

from xbus.clock import Clock
from xbus.rpc.context import Context
from xbus.rpc.curve import Authenticator, BrokerAddress
from xbus.rpc.server import EncryptedDoor, Server

DOMAIN = "recipient"
"""Under which libzmq asks who may connect."""


class BrokerDoor:
    """Opens the address of a recipient, and lets in whom it should.

    Without encryption everybody gets in, and has to prove that he is the broker. With it nobody else gets in.

    Args:
        context: of the recipient.
        broker: the way to the broker; with its keys the recipient's address is encrypted, too.
        clock: for the log.
    """

    def __init__(self, context: Context, broker: BrokerAddress, clock: Clock) -> None:
        self._broker = broker
        self._own = broker.own
        self._authenticator = None if broker.own is None else Authenticator(context, clock)

    def open(self, server: Server, address: str) -> str:
        """Bind the server; give the address with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        if self._own is None or self._authenticator is None:
            return server.bind(address)
        self._authenticator.admit(DOMAIN, self._is_broker)
        return server.bind_encrypted(EncryptedDoor(address, self._own, DOMAIN, self._is_broker))

    def with_key(self, uri: str) -> str:
        """Write an address for the broker, with the key by which it knows this recipient."""
        return uri if self._own is None else f"{uri}?key={quote(self._own.public, safe='')}"

    def start(self) -> None:
        """Let the broker in from now on."""
        if self._authenticator is not None:
            self._authenticator.start()

    def close(self) -> None:
        """Let nobody in any more."""
        if self._authenticator is not None:
            self._authenticator.close()

    def _is_broker(self, key: str) -> bool:
        return key == self._broker.server_key
