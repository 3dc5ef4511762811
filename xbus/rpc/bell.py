"""Wake-ups between parts of the bus, in one process or several: PUSH to PULL over ``b2fsocket``.

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
    """Wakes the listener at an address, whether it is there yet or not.

    Args:
        context: of the whole process.
        address: ``inproc://name``, ``ipc://path`` or ``tcp://host:port``.

    Raises:
        ConfigurationError: ``bad_address``.
    """

    def __init__(self, context: Context, address: str) -> None:
        self._socket = context.socket(zmq.PUSH)
        self._socket.set(zmq.SNDHWM, _UNHEARD)
        self._socket.set(zmq.LINGER, 0)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise _address_error("connect to", address, error) from error

    def ring(self) -> None:
        """Wake the listener; never blocks. To be called from the thread that made the bell."""
        try:
            self._socket.send(b"", zmq.NOBLOCK)
        except zmq.Again:
            # The listener is away, or has not heard the last ring yet.
            return

    def close(self) -> None:
        """Ring no more."""
        self._socket.close()


class Listener:
    """Is woken by the bells at an address.

    Args:
        context: of the whole process; for inproc the one of the bells.
        address: as that of the bells.
    """

    def __init__(self, context: Context, address: str) -> None:
        self._address = address
        self._rung = asyncio.Event()
        self._socket = context.socket(zmq.PULL)
        self._socket.set(zmq.RCVHWM, _UNHEARD)
        self._drain = Drain(self._socket, self._hear)

    def bind(self) -> str:
        """Begin to listen; returns the address, with the port taken where 0 was given.

        Raises:
            ConfigurationError: ``bad_address``, also when it is in use.
        """
        try:
            self._socket.bind(self._address)
        except zmq.ZMQError as error:
            raise _address_error("listen at", self._address, error) from error
        self._drain.resume()
        return bound_endpoint(self._socket)

    async def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most ``timeout`` seconds; whether there was one since the last wait."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        """Listen no more."""
        self._drain.pause()
        self._socket.close()

    def _hear(self, _: list[bytes]) -> None:
        self._rung.set()


def _address_error(doing: str, address: str, error: zmq.ZMQError) -> ConfigurationError:
    cause = f"can't {doing} {address} ({error})"
    return ConfigurationError(cause, "write inproc://name, ipc://path or tcp://host:port", code="bad_address")
