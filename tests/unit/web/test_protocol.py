"""What is written to a client in one turn of the event loop goes out as a whole."""

import asyncio
from typing import cast

from xbus.web.server import WRITE_BYTES, GatheredWrites


class TransportDouble:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append(b"closed")

    def get_write_buffer_size(self) -> int:
        return 0


async def test_head_and_body_are_one_write() -> None:
    inner = TransportDouble()
    writes = GatheredWrites(cast(asyncio.Transport, inner), asyncio.get_running_loop(), 1.0)
    writes.write(b"head")
    writes.write(b"body")
    assert inner.sent == []
    await asyncio.sleep(0)
    assert inner.sent == [b"headbody"]
    writes.write(b"more")
    await asyncio.sleep(0)
    assert inner.sent == [b"headbody", b"more"]


async def test_much_goes_at_once_and_nothing_is_left_behind() -> None:
    inner = TransportDouble()
    writes = GatheredWrites(cast(asyncio.Transport, inner), asyncio.get_running_loop(), 1.0)
    large = bytes(WRITE_BYTES)
    writes.write(b"head")
    writes.write(large)
    assert inner.sent == [b"head" + large], "so that a client that does not read is noticed"
    writes.write(b"end")
    writes.close()
    assert inner.sent[1:] == [b"end", b"closed"]
    await asyncio.sleep(0)
    assert inner.sent[1:] == [b"end", b"closed"]
