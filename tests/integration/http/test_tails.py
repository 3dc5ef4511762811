"""The tail of an event type by server-sent events: at the end, from the past, and behind what came last."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.http.conftest import Serve, Shop, Visit
from tests.support.waiting import eventually
from xbus.broker.journal.api_tokens import add_api_token, revoke_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.http.tails import TailPace

DEADLINE_SECONDS = 30.0


class EventSource:
    """A client of server-sent events, as a browser has one.

    Args:
        reader: the connection, behind the head of the answer.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.last_id = ""
        self.comments = 0
        self._reader = reader
        self._text = ""

    async def next(self) -> tuple[str, Any]:
        """The next event: its kind and its data."""
        while True:
            block = await self._block()
            fields: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                self.comments += not name
                fields[name] = value.removeprefix(" ")
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return fields.get("event", "message"), json.loads(fields["data"])

    async def _block(self) -> str:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while "\n\n" not in self._text:
                size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
                if not size:
                    raise EOFError
                self._text += (await self._reader.readexactly(size + 2))[:-2].decode()
        block, self._text = self._text.split("\n\n", 1)
        return block


@asynccontextmanager
async def asked(port: int, shop: Shop, path: str, *headers: str, login: str = "following_1") -> AsyncIterator[Any]:
    """The reader of a connection, and the head of the answer to a request."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        told = "".join(f"{header}\r\n" for header in (f"Authorization: Bearer {shop.tokens[login]}", *headers))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n{told}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    try:
        yield reader, head
    finally:
        writer.close()


@asynccontextmanager
async def following(port: int, shop: Shop, query: str = "", *headers: str, name: str = "news") -> AsyncIterator[Any]:
    """A source that has begun: what is sent from now on comes to it."""
    async with asked(port, shop, f"/v1/types/{name}/tail{query}", *headers) as (reader, head):
        assert head.startswith("HTTP/1.1 200"), head
        assert "content-type: text/event-stream" in head
        source = EventSource(reader)
        assert (await source._block()).startswith("id: from:")
        yield source


@pytest.fixture
def send(visit: Visit) -> Any:
    """Sends an envelope with items; its position."""
    client = visit()

    def send(*items: Any, name: str = "news", key: str = "k") -> int:
        told = {"x-xbus-partition-key": key}
        position: int = client.post(f"/v1/types/{name}/envelopes", json=[*items], headers=told).json()["position"]
        return position

    return send


async def test_items_come_as_events_whose_ids_are_places(shop: Shop, serve: Serve, send: Any) -> None:
    async with serve() as port, following(port, shop) as source:
        position = send({"n": 1})
        kind, told = await source.next()
        assert (kind, told["value"], told["type"], told["position"]) == ("message", {"n": 1}, "news", position)
        assert source.last_id == str(position)
        several = send("a", "b\n\nc\r", "d")
        values = [(await source.next())[1]["value"] for _ in range(3)]
        assert (values, source.last_id) == (["a", "b\n\nc\r", "d"], f"{several}:0:2")


async def test_who_comes_again_goes_on_behind_the_last(shop: Shop, serve: Serve, send: Any) -> None:
    position = send(1, 2, 3)
    async with serve() as port:
        async with following(port, shop, "", f"Last-Event-ID: {position}") as source:
            assert (await source.next())[1]["value"] == 2
            last = source.last_id
        # It counts, and not where the request says to begin.
        async with following(port, shop, "?from=oldest", f"Last-Event-ID: {last}") as source:
            assert (await source.next())[1]["value"] == 3
            last = source.last_id
        send(4)
        async with following(port, shop, "", f"Last-Event-ID: {last}") as source:
            assert (await source.next())[1]["value"] == 4
        # One that got nothing yet knows where it began, too.
        async with asked(port, shop, "/v1/types/news/tail") as (reader, _):
            mark = (await EventSource(reader)._block()).removeprefix("id: ")
        send(5)
        async with following(port, shop, "", f"Last-Event-ID: {mark}") as source:
            assert (await source.next())[1]["value"] == 5


async def test_it_begins_where_the_request_says(shop: Shop, serve: Serve, send: Any) -> None:
    position = send("old", "older", name="eu/news")
    async with serve() as port:
        for query in ("?from=-1h", "?from=1h", "?from=oldest", f"?from={position}", "?from=2020-01-01T00:00%2B01:00"):
            async with following(port, shop, query, name="eu/news") as source:
                assert (await source.next())[1]["value"] == "old", query
        async with following(port, shop, f"?from={position}:0:1", name="eu/news") as source:
            assert (await source.next())[1]["value"] == "older"


async def test_only_one_key_is_followed(shop: Shop, serve: Serve, send: Any) -> None:
    async with serve() as port, following(port, shop, "?key=client%207") as source:
        send("not this", key="client 8")
        send("this", key="client 7")
        assert (await source.next())[1]["value"] == "this"


async def test_all_who_follow_share_one_look_at_the_log(shop: Shop, serve: Serve, send: Any) -> None:
    async with serve() as port, following(port, shop) as first, following(port, shop) as second:
        gateway = serve.gateway
        await eventually(lambda: gateway.tails.followers == 2, "both are at the end")
        assert gateway.tails.open == 1
        send("for both")
        assert [(await each.next())[1]["value"] for each in (first, second)] == ["for both"] * 2
    assert (gateway.tails.open, gateway.tails.followers) == (0, 0)


async def test_who_is_behind_the_kept_chunks_reads_the_log(shop: Shop, serve: Serve, send: Any) -> None:
    many = [f"{number} {'x' * 1000}" for number in range(300)]
    async with serve(TailPace(kept_bytes=1)) as port, following(port, shop) as source, following(port, shop) as other:
        for number in range(0, 300, 50):
            send(*many[number : number + 50])
        got = [(await source.next())[1]["value"] for _ in many]
        assert got == many
        # The other one has read nothing meanwhile, and misses nothing.
        assert [(await other.next())[1]["value"] for _ in many] == many


async def test_the_silent_get_signs_of_life(shop: Shop, serve: Serve, send: Any) -> None:
    pace = TailPace(poll_seconds=0.1, beat_seconds=0.1)
    async with serve(pace) as port, following(port, shop) as source:
        block = await source._block()
        assert block == ":"
        assert (await source._block()).startswith("id: from:")


@pytest.mark.parametrize(
    ("path", "login", "status", "code"),
    [
        ("/v1/types/news/tail?from=soon", "following_1", 400, "moment_invalid"),
        ("/v1/types/news/tail?from=999999999", "following_1", 422, "place_beyond_end"),
        ("/v1/types/news/tail?from=-999999999w", "following_1", 400, "moment_invalid"),
        ("/v1/types/news/tail?begin=1", "following_1", 400, "bad_request"),
        ("/v1/types/bills/tail", "following_1", 403, "type_not_read"),
        ("/v1/types/nothing/tail", "following_1", 404, "type_unknown"),
        ("/v1/types/news/tail", "emitter_1", 401, "session_unknown"),
    ],
)
async def test_what_is_wrong_is_refused(
    shop: Shop, serve: Serve, path: str, login: str, status: int, code: str
) -> None:
    async with serve() as port, asked(port, shop, path, "Connection: close", login=login) as (reader, head):
        assert head.startswith(f"HTTP/1.1 {status}"), head
        assert json.loads(await reader.read())["code"] == code


@pytest.mark.parametrize("last", ["x", "1:2:3:4", "from:", "-1", "9" * 40])
async def test_a_strange_last_id_is_refused(shop: Shop, serve: Serve, last: str) -> None:
    async with serve() as port, asked(port, shop, "/v1/types/news/tail", f"Last-Event-ID: {last}") as (_, head):
        assert head.startswith("HTTP/1.1 400"), head


async def test_a_follower_ends_when_the_token_is_revoked(shop: Shop, serve: Serve) -> None:
    with writing(shop.daemon.url) as connection:
        token = add_api_token(connection, "short reader", role="following_1", at=SystemClock().now())
    shop.tokens["short"] = token
    async with serve() as port:

        async def is_known() -> bool:
            async with asked(port, shop, "/v1/types/news/tail", login="short") as (_, head):
                return "200" in head.split("\r\n")[0]

        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await is_known():
                await asyncio.sleep(0.05)
        async with asked(port, shop, "/v1/types/news/tail", login="short") as (reader, _):
            with writing(shop.daemon.url) as connection:
                revoke_api_token(connection, "short reader", SystemClock().now())
            source = EventSource(reader)
            kind, problem = await source.next()
            assert (kind, problem["code"]) == ("problem", "session_unknown")
            with pytest.raises(EOFError):
                await source.next()


async def test_who_takes_nothing_is_cut_off_and_holds_nobody_up(shop: Shop, serve: Serve, visit: Visit) -> None:
    client = visit()
    body = "".join(f'"{"x" * 10_000}"\n' for _ in range(250))

    def send() -> None:
        told = {"content-type": "application/x-ndjson"}
        assert client.post("/v1/types/news/envelopes", content=body, headers=told).status_code == 201

    async with serve(slow_seconds=0.5) as port, following(port, shop) as quick:
        greedy = socket.socket()
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", port))
        head = (
            f"GET /v1/types/news/tail HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {shop.tokens['following_1']}\r\n\r\n"
        )
        greedy.send(head.encode())
        await eventually(lambda: serve.gateway.tails.followers == 2, "both follow")
        for _ in range(4):
            await asyncio.to_thread(send)
        for _ in range(1000):
            await quick.next()
        await eventually(lambda: serve.gateway.tails.followers == 1, "the other one is cut off")
        greedy.close()


async def test_a_follower_ends_when_the_gateway_stops(shop: Shop, serve: Serve) -> None:
    async with serve() as port:
        async with asked(port, shop, "/v1/types/news/tail") as (reader, _):
            source = EventSource(reader)
            await source._block()
            serve.server.should_exit = True
            with pytest.raises(EOFError):
                await source.next()
