"""The same for any ASGI server, such as uvicorn: the emitter lives as long as the application does."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from xbus.emitter import AsyncEmitter

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Application:
    def __init__(self) -> None:
        url = os.environ.get("XBUS_FRONT", "tcp://127.0.0.1:1984")
        self.emitter = AsyncEmitter(url, "test_emitter", "password", retry_seconds=5)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        else:
            await self.answer(receive, send)

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        async with self.emitter:
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
        await send({"type": "lifespan.shutdown.complete"})

    async def answer(self, receive: Receive, send: Send) -> None:
        request = await receive()
        receipt = await self.emitter.put("test_event", [{"name": request["body"].decode()}])
        text = f"sealed at position {receipt.position}, sent by process {os.getpid()}\n"
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": text.encode()})


application = Application()
