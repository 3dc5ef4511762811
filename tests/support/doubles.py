"""Servers that stand in for a part of the broker, over real sockets."""

import asyncio
from collections import defaultdict, deque
from typing import Any, Self

from xbus.errors import ConfigurationError
from xbus.rpc.context import Context
from xbus.rpc.dispatch import Dispatch
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
        self.address = "tcp://127.0.0.1:*"
        self.tokens: set[str] = set()
        self.calls: list[str] = []
        self.faults: defaultdict[str, deque[Any]] = defaultdict(deque)

    def start(self) -> Self:
        """Listen, at the address of before."""
        server = Server(self._context, Dispatch(self), name=type(self).__name__, max_message_bytes=-1)
        try:
            self.address = server.bind(self.address)
        except ConfigurationError:
            server.close()
            raise
        self._server = server
        server.start()
        return self

    def start_again(self) -> None:
        """Listen as soon as the address of before is free."""
        try:
            self.start()
        except ConfigurationError:  # libzmq has not let go of the port yet
            asyncio.get_running_loop().call_later(0.01, self.start_again)

    def stop(self) -> None:
        """Vanish, with every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
