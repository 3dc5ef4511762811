"""Opens a connection to the broker, by which the calls of all tokens go."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from xbus.clock import Clock
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.life_signs import LifeSigns

HEARTBEAT_SECONDS = 5.0
"""Seconds between the signs of life that the broker gives beneath the calls. They reveal a vanished machine."""


@asynccontextmanager
async def connected(address: str, clock: Clock, max_message_bytes: int = -1) -> AsyncIterator[Client]:
    """Connect for as long as the block lasts.

    Args:
        address: of the front or the back; with keys for an encrypted one.
        clock: stamps the requests.
        max_message_bytes: a larger frame ends the connection; -1 for no limit.

    Raises:
        ConfigurationError: the address makes no sense, or names a key file that can't be used.
    """
    with ExitStack() as exit_stack:
        context = new_context()
        exit_stack.callback(context.destroy)
        signs = LifeSigns(heartbeat_seconds=HEARTBEAT_SECONDS)
        client = Client(context, name=address, clock=clock, max_message_bytes=max_message_bytes, life_signs=signs)
        exit_stack.callback(client.close)
        client.connect(address)
        yield client
