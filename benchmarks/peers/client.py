"""The side of a peer that the programs ``sends`` and ``takes`` use."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class PeerClient(Protocol):
    """A connection to a peer."""

    async def send(self, message: bytes) -> None:
        """Send a message, and come back when the server has confirmed it."""

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        """Take so many messages, and acknowledge each; the caller is told of it before."""


Connect = Callable[[str, int], AbstractAsyncContextManager[PeerClient]]
"""Connects to a server at an address, for so many messages in flight."""
