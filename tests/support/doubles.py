"""Servers that stand in for a part of the broker, over real sockets."""

import asyncio
from collections import defaultdict, deque
from typing import Any, Self

from tests.support.ports import free_port
from tests.support.waiting import wait_until
from xbus.errors import ConfigurationError
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import ServerLimits
from xbus.rpc.server import Server


class Double:
    """Serves the verbs of the class that is derived from it.

    Attributes:
        address: where it listens; the same after it was away.
        tokens: the sessions that it knows.
        calls: the verbs called, in order.
        faults: what the next calls of a verb come to instead.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._server: Server | None = None
        # Of its own, so that nobody takes it while the server is away.
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.tokens: set[str] = set()
        self.calls: list[str] = []
        self.faults: defaultdict[str, deque[Any]] = defaultdict(deque)

    def start(self) -> Self:
        """Listen, at the same address each time: libzmq lets go of it some time after a stop, in the background."""
        wait_until(self._listens, f"{self.address} is free")
        return self

    def start_again(self) -> None:
        """Listen soon, for those who must not wait for that."""
        if not self._listens():
            asyncio.get_running_loop().call_later(0.01, self.start_again)

    def _listens(self) -> bool:
        server = Server(self._context, Dispatch(self), name=type(self).__name__, limits=ServerLimits(-1))
        try:
            server.bind(self.address)
        except ConfigurationError:  # libzmq still has it
            server.close()
            return False
        self._server = server
        server.start()
        return True

    def stop(self) -> None:
        """Vanish, with every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
