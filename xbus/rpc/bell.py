"""Wake-ups between the parts of the bus, in one process or several: DEALER to DEALER over ``b2fsocket``, both ways.

A wake-up carries nothing and may get lost; whoever waits also looks by itself now and then.
"""

import asyncio

import zmq

from xbus.errors import ConfigurationError
from xbus.rpc.context import Context
from xbus.rpc.drain import Drain, bound_endpoint

_UNHEARD = 1
"""One wake-up that waits is as good as many."""


class Bell:
    """One end of a bell wire: rings at the other end, and is rung from there. One end binds, the other connects.

    Args:
        context: of the whole process; for inproc the one of both ends.
        address: ``inproc://name``, ``ipc://path`` or ``tcp://host:port``.
    """

    def __init__(self, context: Context, address: str) -> None:
        self._address = address
        self._rung = asyncio.Event()
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.SNDHWM, _UNHEARD)
        self._socket.set(zmq.RCVHWM, _UNHEARD)
        self._socket.set(zmq.LINGER, 0)
        self._drain = Drain(self._socket, self._hear)

    def bind(self) -> str:
        """Become the end that others connect to; return the address, with the port taken for 0.

        Raises:
            ConfigurationError: ``bad_address``, also when it is in use.
        """
        try:
            self._socket.bind(self._address)
        except zmq.ZMQError as error:
            raise _address_error("listen at", self._address, error) from error
        self._drain.resume()
        return bound_endpoint(self._socket)

    def connect(self) -> None:
        """Become the end that connects, whether the other exists yet or not.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        try:
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            raise _address_error("connect to", self._address, error) from error
        self._drain.resume()

    def ring(self) -> None:
        """Wake the other end; never blocks. To be called from the thread that made the bell."""
        try:
            self._socket.send(b"", zmq.NOBLOCK)
        except zmq.Again:
            # The other end is away, or has not heard the last ring yet.
            return
        self._drain.check()

    async def wait(self, timeout: float) -> bool:
        """Wait to be rung, at most ``timeout`` seconds; whether it was since the last wait."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        """Ring and hear no more."""
        self._drain.pause()
        self._socket.close()

    def _hear(self, _: list[bytes]) -> None:
        self._rung.set()


def _address_error(doing: str, address: str, error: zmq.ZMQError) -> ConfigurationError:
    cause = f"can't {doing} {address} ({error})"
    return ConfigurationError(cause, "write inproc://name, ipc://path or tcp://host:port", code="bad_address")
