"""Sends several envelopes at a time, from a program that runs an asyncio loop."""

import asyncio
import sys

from xbus.emitter import AsyncEmitter


async def send(emitter: AsyncEmitter, name: str) -> int:
    async with emitter.envelope() as envelope, envelope.event("test_event") as event:
        await event.send({"name": name})
    return envelope.receipt.items


async def main(url: str = "tcp://127.0.0.1:1984") -> None:
    async with AsyncEmitter(url, "test_emitter", "password") as emitter:
        sent = await asyncio.gather(*(send(emitter, name) for name in ("Ada", "Grace", "Edsger")))
    print("items sent:", sum(sent))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
