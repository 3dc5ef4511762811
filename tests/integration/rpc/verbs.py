"""A service with handlers of all kinds."""

import asyncio
from typing import Any

from xbus.errors import Failed, Refused
from xbus.rpc.dispatch import verb


class Verbs:
    """Notes what is called; ``gate`` holds what ``wait`` and ``promise`` answer."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @verb("echo")
    def echo(self, value: Any) -> Any:
        return value

    @verb("xbus.note")
    def note(self, number: int) -> int:
        self.called.append(number)
        return number

    @verb("wait")
    async def wait(self) -> int:
        return await asyncio.shield(self.gate)

    @verb("promise")
    def promise(self) -> "asyncio.Future[int]":
        return self.gate

    @verb("refuse")
    def refuse(self) -> None:
        raise Refused("the type is unknown", "ask for it", code="unknown_type")

    @verb("fail_later")
    async def fail_later(self) -> None:
        raise Failed("the journal is away", "try again", code="journal_unavailable")

    @verb("break")
    def breaks(self) -> None:
        raise KeyError("a secret of the inside")

    @verb("unsendable")
    def unsendable(self) -> object:
        return object()
