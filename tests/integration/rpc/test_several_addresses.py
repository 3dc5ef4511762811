"""A client with several addresses calls the server that leads."""

import asyncio
import contextlib
import socket

import pytest

from tests.integration.rpc.conftest import SECONDS, Connect, Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import eventually
from xbus.errors import ConfigurationError, ConnectionLost, Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.context import Context
from xbus.rpc.curve import BrokerAddress, new_pair, parse_addresses, shown
from xbus.rpc.dispatch import verb

KEY = "0" * 40
SILENT_SECONDS = 4.5
"""A server that shows no life for so long is left."""


class MayLead(Verbs):
    """A server that may wait for its turn to lead."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = False
        self.bus_id = "ours"

    @verb("xbus.leads")
    def bus(self) -> str:
        if not self.leads:
            raise Failed("another broker leads", code="not_leading")
        return self.bus_id


class NeverSays:
    """A server that takes the question, and does not answer."""

    @verb("xbus.leads")
    async def leads(self) -> str:
        await asyncio.get_running_loop().create_future()
        return ""


class LeadsNoMore:
    """A server that led when it was asked."""

    def __init__(self) -> None:
        self.gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @verb("xbus.note")
    def note(self, number: int) -> int:
        raise Failed("another broker leads", code="not_leading")

    @verb("wait")
    async def wait(self) -> int:
        return await asyncio.shield(self.gate)


async def test_one_that_can_not_be_reached_is_passed(serve: Serve, connect: Connect, unused_address: str) -> None:
    _, address = serve(Verbs())
    client = connect(f"{unused_address}, {address}")
    assert await client.call("echo", 1, timeout=SECONDS) == 1


async def test_where_one_is_lost_the_next_one_is_called(serve: Serve, connect: Connect) -> None:
    first, second = Verbs(), Verbs()
    server, address = serve(first)
    _, other = serve(second)
    lost: list[str] = []
    client = connect(f"{address},{other}", on_lost=lambda: lost.append("lost"))
    await client.call("xbus.note", 1, timeout=SECONDS)
    held = client.call("wait", timeout=SECONDS)
    await eventually(lambda: server.unanswered == 1, "a call waits")
    server.close()
    with pytest.raises(ConnectionLost):
        await held
    assert await client.call("xbus.note", 2, timeout=SECONDS) == 2
    assert (first.called, second.called, lost) == ([1], [2], ["lost"])


async def test_calls_wait_for_one_that_leads(serve: Serve, connect: Connect) -> None:
    servers = [MayLead(), MayLead()]
    client = connect(",".join(serve(each)[1] for each in servers))
    waits = client.call("xbus.note", 1, timeout=SECONDS)
    with pytest.raises(Failed, match="another broker leads"):
        await client.call("xbus.note", 2, timeout=0.5)
    assert not waits.done()
    servers[1].leads = True
    assert await waits == 1
    assert [each.called for each in servers] == [[], [1]]


async def test_one_that_reads_nothing_for_a_while_shows_life_and_is_not_left(
    serve: Serve, connect: Connect, unused_address: str
) -> None:
    """As where the commits of a leader wait for another machine."""
    verbs, may_read = MayLead(), True
    verbs.leads = True
    server, address = serve(verbs, may_read=lambda: may_read)
    lost: list[str] = []
    client = connect(f"{address},{unused_address}", on_lost=lambda: lost.append("lost"))
    assert await client.call("xbus.note", 1, timeout=SECONDS) == 1
    may_read = False
    waits = client.call("xbus.note", 2, timeout=SECONDS)
    await asyncio.sleep(SILENT_SECONDS)
    may_read = True
    server.resume()
    assert await waits == 2
    assert not lost


async def test_one_that_does_not_say_whether_it_leads_is_passed(serve: Serve, connect: Connect) -> None:
    """As one whose loop stands still behind libzmq, which shows life for it."""
    verbs = Verbs()
    _, silent = serve(NeverSays())
    _, address = serve(verbs)
    client = connect(f"{silent},{address}")
    assert await client.call("xbus.note", 1, timeout=SECONDS) == 1


async def test_an_encrypted_one_that_says_nothing_is_passed(context: Context) -> None:
    """Calls wait for the other one: a handshake that takes too long looks like one with another key."""
    own, server = new_pair(), new_pair()
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        places = [BrokerAddress(f"tcp://127.0.0.1:{each}", server_key=server.public, own=own) for each in (port, 1)]
        client = Client(context, name="test server")
        client.connect_to(*places)
        waits = client.call("xbus.note", 1, timeout=SILENT_SECONDS)
        await asyncio.sleep(SILENT_SECONDS - 1)
        assert not waits.done()
        with pytest.raises(Failed) as caught:
            await waits
        assert caught.value.code == "handshake_failed"
        client.close()


async def test_one_of_another_bus_is_refused(serve: Serve, connect: Connect) -> None:
    servers = [MayLead(), MayLead()]
    started = [serve(each) for each in servers]
    for each in servers:
        each.leads = True
    servers[1].bus_id = "theirs"
    client = connect(",".join(address for _, address in started))
    assert await client.call("xbus.note", 1, timeout=SECONDS) == 1
    started[0][0].close()
    with pytest.raises(Refused) as caught:
        while True:
            with contextlib.suppress(ConnectionLost):
                await client.call("xbus.note", 2, timeout=SECONDS)
    assert caught.value.code == "other_bus"
    assert servers[1].called == []


async def test_one_that_the_system_alone_answers_for_is_passed(serve: Serve, connect: Connect) -> None:
    """As where the process of a server is frozen."""
    _, address = serve(Verbs())
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        client = connect(f"tcp://127.0.0.1:{frozen.getsockname()[1]},{address}")
        assert await client.call("echo", 1, timeout=SECONDS) == 1


async def test_one_that_leads_no_more_is_left_and_what_it_owes_fails(serve: Serve, connect: Connect) -> None:
    verbs = Verbs()
    server, address = serve(LeadsNoMore())
    _, other = serve(verbs)
    client = connect(f"{address},{other}")
    held = client.call("wait", timeout=SECONDS)
    await eventually(lambda: server.unanswered == 1, "a call waits")
    with pytest.raises(Failed, match="another broker leads"):
        await client.call("xbus.note", 1, timeout=SECONDS)
    with pytest.raises(ConnectionLost):
        await held
    assert await client.call("xbus.note", 2, timeout=SECONDS) == 2
    assert verbs.called == [2]


async def test_a_client_that_is_closed_turns_to_nobody(serve: Serve, connect: Connect, unused_address: str) -> None:
    verbs = Verbs()
    _, address = serve(LeadsNoMore())
    _, other = serve(verbs)
    client = connect(f"{address},{other}")
    with pytest.raises(Failed, match="another broker leads"):
        await client.call("xbus.note", 1, timeout=SECONDS)
    client.close()
    with pytest.raises(ConnectionLost):
        await client.call("xbus.note", 2, timeout=SECONDS)
    assert verbs.called == []


@pytest.mark.parametrize("second", ["", "127.0.0.1:1984", "xbus://me@there:1?key=wrong"])
async def test_one_bad_address_among_several_is_told(connect: Connect, second: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect(f"tcp://127.0.0.1:1,{second}")
    assert caught.value.code == "bad_address"


def test_people_see_no_secrets_of_several_addresses() -> None:
    address = f"xbus://me@a:1?key={KEY}&client_key=secret.key,xbus://me@b:2?key={KEY}&client_key=secret.key"
    assert shown(address) == "xbus://a:1,xbus://b:2"
    assert len(parse_addresses("ipc:///run/a,b.sock,tcp://b:2")) == 2
