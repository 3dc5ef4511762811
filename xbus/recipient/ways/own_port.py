"""The broker connects to an address at which the recipient listens."""

from xbus.recipient.ways.door import BrokerDoor
from xbus.recipient.ways.proof import BrokerProof
from xbus.recipient.ways.way import CallBack
from xbus.rpc.server import Server


class OwnPort:
    """The recipient listens at an address, and the broker connects there.

    Args:
        server: takes the calls.
        door: the address, and who is let in there.
        proof: lets the broker call, and nobody else.
        uri: where the broker reaches it.
    """

    is_open = True
    outlives_connections = False

    def __init__(self, server: Server, door: BrokerDoor, proof: BrokerProof, uri: str) -> None:
        self._server = server
        self._door = door
        self._proof = proof
        self.name = uri

    @property
    def caller(self) -> bytes:
        """The connection by which the call came."""
        return self._server.caller

    def expect(self, token_hash: bytes) -> None:
        """Demand the proof of each caller."""
        self._proof.expect(token_hash)

    async def register(self, call: CallBack) -> None:
        """Have the broker connect to the address."""
        await call("xbus.register_node", self.name)

    def start(self) -> None:
        """Read the calls that come to the port."""
        self._door.start()
        self._server.start()

    def close(self) -> None:
        """Close the port."""
        self._server.close()
        self._door.close()
