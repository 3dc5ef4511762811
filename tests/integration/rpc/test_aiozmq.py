"""aiozmq, which the existing emitters and recipients use, on either side."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from typing import Any

import aiozmq.rpc
import pytest

from tests.integration.rpc.conftest import SECONDS, Connect, Serve
from tests.integration.rpc.verbs import Verbs
from xbus.errors import Failed, Refused
from xbus.rpc.client import Client


class OldVerbs(aiozmq.rpc.AttrHandler):  # type: ignore[misc]
    """A recipient of the old generation."""

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    def send_item(self, indices: Any, data: Any) -> Any:
        return True, [(indices, data)]

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    async def later(self) -> Any:
        return True, None

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    def breaks(self) -> Any:
        raise ValueError("no")

    @aiozmq.rpc.method  # type: ignore[untyped-decorator]
    def today(self) -> Any:
        return datetime.date(2016, 1, 1)


@pytest.fixture
async def old_client(serve: Serve) -> AsyncIterator[Any]:
    _, address = serve(Verbs())
    client = await aiozmq.rpc.connect_rpc(connect=address, timeout=SECONDS)
    yield client
    client.close()
    await client.wait_closed()


@pytest.fixture
async def client_of_old(connect: Connect) -> AsyncIterator[Client]:
    server = await aiozmq.rpc.serve_rpc(OldVerbs(), bind="tcp://127.0.0.1:*")
    yield connect(next(iter(server.transport.bindings())))
    server.close()
    await server.wait_closed()


async def test_an_old_client_is_answered(old_client: Any) -> None:
    assert await old_client.call.echo(("a", b"b", None)) == ("a", b"b", None)
    assert await old_client.call.echo(value=1) == 1
    assert await asyncio.gather(*(old_client.call.xbus.note(number) for number in range(50))) == list(range(50))


async def test_an_old_client_raises_the_errors_that_it_knows(old_client: Any) -> None:
    with pytest.raises(aiozmq.rpc.NotFoundError):
        await old_client.call.nothing()
    with pytest.raises(aiozmq.rpc.ParametersError):
        await old_client.call.echo()
    with pytest.raises(aiozmq.rpc.ParametersError, match="extension"):
        await old_client.call.echo(datetime.date(2016, 1, 1))
    with pytest.raises(aiozmq.rpc.GenericError, match="unknown_type"):
        await old_client.call.refuse()


async def test_an_old_recipient_is_called(client_of_old: Client) -> None:
    assert await client_of_old.call("send_item", [1, 2], b"x", timeout=SECONDS) == [True, [[[1, 2], b"x"]]]
    assert await client_of_old.call("later", timeout=SECONDS) == [True, None]


@pytest.mark.parametrize(
    ("verb", "kind", "code"),
    [
        ("breaks", Failed, "error_reply"),
        ("nothing", Refused, "unknown_method"),
        ("send_item", Refused, "wrong_arguments"),
        ("today", Refused, "bad_answer"),
    ],
)
async def test_errors_of_an_old_recipient(client_of_old: Client, verb: str, kind: type[Exception], code: str) -> None:
    with pytest.raises(kind) as caught:
        await client_of_old.call(verb, timeout=SECONDS)
    assert getattr(caught.value, "code", None) == code
