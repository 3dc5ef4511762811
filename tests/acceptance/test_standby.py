"""A broker stands by beside the one that leads, and serves when that one is gone."""

import asyncio
import json
import signal
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import READY_SECONDS, Daemon, told_address, write_config
from tests.support.gateway import serving_http
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.ports import free_port
from tests.support.processes import run, script
from tests.support.serving import serving
from tests.support.waiting import eventually, wait_until
from tests.torture.clocks import ahead
from tests.torture.proxy import Proxy
from xbus import model
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter, Emitter
from xbus.errors import CallError
from xbus.recipient import Consumer, Event, Item

GRAPH: dict[str, dict[str, list[str]]] = {"test_event": {"c": []}}
STARTS_ANEW = 3


@pytest.fixture
def lease() -> float:
    """How long a broker leads without renewing that, in seconds."""
    return 3.0


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, lease: float) -> Iterator[tuple[Daemon, Daemon]]:
    """One that leads, and one that stands by."""
    add_bus(postgres_url, GRAPH)
    options = {"broker": {"standby": "true", "lease": lease}}
    first, second = (Daemon(tmp_path / name, postgres_url, options) for name in ("first", "second"))
    try:
        first.start()
        second.begin()
        wait_until(lambda: "standing by" in second.log, "the second one stands by")
        yield first, second
    finally:
        first.kill()
        second.kill()


def works(daemon: Daemon) -> None:
    async def emit() -> None:
        async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
            await consumer.wait_for([await emitter.emit(b"x")])

    asyncio.run(emit())


def refusal(daemon: Daemon) -> CallError:
    front = told_address(daemon, "front")
    with pytest.raises(CallError) as caught, Emitter(front, "emitter_1", PASSWORD, retry_seconds=0.5) as emitter:
        emitter.put("test_event", [b"x"])
    return caught.value


def test_one_that_stands_by_names_the_leader_and_serves_when_that_one_was_killed(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    works(first)
    failed = refusal(second)
    assert failed.code == "not_leading"
    assert first.front in str(failed)
    first.crash()
    second.wait_ready()
    works(second)


class Notes(Consumer):
    """Notes what it gets."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def on_item(self, event: Event, item: Item) -> None:
        self.items.append(str(item.value))


@pytest.mark.parametrize("in_order", [True, False])
async def test_emitters_and_recipients_find_the_next_broker_by_themselves(
    pair: tuple[Daemon, Daemon], in_order: bool
) -> None:
    """They have both addresses. Where the broker that stands by comes first, they turn to the other one."""
    first, second = pair
    order = pair if in_order else (second, first)
    front, back = (",".join(told_address(daemon, part) for daemon in order) for part in ("front", "back"))
    notes = Notes()
    keys = [f"invoice {number}" for number in range(200)]
    async with serving(first, "c_1", notes, back=back), AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
        puts = asyncio.gather(*(emitter.put("test_event", [key], key=key) for key in keys))
        await eventually(lambda: len(notes.items) > 0, "the first one delivers")
        first.kill()
        receipts = await puts
        more = [f"invoice {number}" for number in range(200, 210)]
        receipts += [await emitter.put("test_event", [key], key=key) for key in more]
        await eventually(lambda: {*notes.items} == {*keys, *more}, "the second one delivers all")
    assert len({receipt.position for receipt in receipts}) == len(receipts)


def test_a_command_asks_the_broker_that_answers(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    backs = f"{first.back},{told_address(second, 'back')}"
    first.kill()
    told = run(script("xbus"), "health", "--url", backs)
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("lease", [10 * READY_SECONDS])
def test_one_that_is_stopped_hands_over_and_stands_by_when_it_comes_back(pair: tuple[Daemon, Daemon]) -> None:
    """The lease lasts for longer than the test: whoever leads next got it from the one before."""
    first, second = pair
    assert first.stop() == 0
    second.wait_ready()
    works(second)
    first.begin()
    wait_until(lambda: first.log.count("standing by") == 2, "the first one stands by")
    works(second)
    assert second.stop() == 0
    first.wait_ready()
    works(first)


async def test_a_leader_that_was_frozen_ends_when_it_wakes_up(pair: tuple[Daemon, Daemon]) -> None:
    """Its programs have turned to the other one meanwhile, though the system keeps their connections."""
    first = pair[0]
    async with programs_of(pair) as (emitter, notes):
        first.process.signal(signal.SIGSTOP)
        try:
            await emitter.put("test_event", ["meanwhile"], key="meanwhile")
            await eventually(lambda: "meanwhile" in notes.items, "the second one delivers")
        finally:
            first.process.signal(signal.SIGCONT)
        assert await asyncio.to_thread(first.process.wait) == STARTS_ANEW
        await emitter.put("test_event", ["after"])
        await eventually(lambda: "after" in notes.items, "the second one goes on")


class FailsFirst(Notes):
    """Fails until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.is_mended = False

    def on_item(self, event: Event, item: Item) -> None:
        if not self.is_mended:
            raise RuntimeError("not now")
        super().on_item(event, item)


async def test_a_leader_whose_clock_is_an_hour_ahead_delays_nothing_at_the_next_one(
    postgres_url: str, tmp_path: Path
) -> None:
    clock = ahead(3600, tmp_path)
    if not clock:
        pytest.skip("no C compiler to have a clock be wrong")
    add_bus(postgres_url, GRAPH)
    options = {"broker": {"standby": "true"}, "back": {"first_delay": "0.1"}}
    first, second = (Daemon(tmp_path / name, postgres_url, options) for name in ("first", "second"))
    try:
        first.start(env=dict(each.split("=", 1) for each in clock[1:]))
        second.begin()
        await eventually(lambda: "standing by" in second.log, "the second one stands by")
        front, back = (",".join(told_address(each, part) for each in (first, second)) for part in ("front", "back"))
        fails = FailsFirst()
        async with serving(first, "c_1", fails, back=back), AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
            await emitter.put("test_event", ["x"])
            await eventually(lambda: delayed(postgres_url) > 0, "the first one delays what failed")
            first.kill()
            fails.is_mended = True
            await eventually(lambda: fails.items == ["x"], "the second one tries again")
    finally:
        first.kill()
        second.kill()


def delayed(url: str) -> int:
    """The number of deliveries that are to be tried again."""
    with reading(url) as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(model.delivery)).scalar_one()


async def test_a_leader_that_does_not_reach_its_database_leaves_its_programs_to_the_other_one(
    postgres_url: str, tmp_path: Path
) -> None:
    add_bus(postgres_url, GRAPH)
    place = make_url(postgres_url)
    async with AsyncExitStack() as stack:
        proxy = Proxy(place.port or 5432)
        await proxy.start()
        stack.push_async_callback(proxy.close)
        through = place.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        options = {"broker": {"standby": "true"}}
        pair = Daemon(tmp_path / "first", through, options), Daemon(tmp_path / "second", postgres_url, options)
        for daemon in pair:
            stack.callback(daemon.kill)
            daemon.begin()
            await eventually(lambda daemon=daemon: "standing by" in daemon.log, "it looks for the leader")  # type: ignore[misc]
        await asyncio.to_thread(pair[0].wait_ready)
        async with programs_of(pair) as (emitter, notes):
            proxy.hold()
            await emitter.put("test_event", ["meanwhile"], key="meanwhile")
            await eventually(lambda: "meanwhile" in notes.items, "the second one delivers")
            assert await asyncio.to_thread(pair[0].process.wait) == STARTS_ANEW


@pytest.mark.parametrize("lease", [10 * READY_SECONDS])
async def test_an_operator_has_the_other_one_lead(pair: tuple[Daemon, Daemon]) -> None:
    """The lease lasts for longer than the test: whoever leads next got it from the one before."""
    first, second = pair
    async with programs_of(pair) as (emitter, notes):
        told = await asyncio.to_thread(run, script("xbus"), "broker", "handover", "-c", first.config)
        assert told.returncode == 0, told.stderr
        await emitter.put("test_event", ["after"])
        await eventually(lambda: "after" in notes.items, "the second one delivers")
        assert await asyncio.to_thread(first.process.wait) == STARTS_ANEW
    told = run(script("xbus"), "broker", "handover", "--to", "nobody", "-c", second.config)
    assert "[nobody_stands_by]" in told.stderr


@asynccontextmanager
async def programs_of(pair: Sequence[Daemon]) -> AsyncIterator[tuple[AsyncEmitter, Notes]]:
    """An emitter and a consumer of a bus whose leader works; they know both brokers."""
    front, back = (",".join(told_address(daemon, part) for daemon in pair) for part in ("front", "back"))
    notes = Notes()
    async with serving(pair[0], "c_1", notes, back=back), AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
        await emitter.put("test_event", ["before"])
        await eventually(lambda: notes.items == ["before"], "the first one delivers")
        yield emitter, notes


async def test_the_gateway_holds_a_request_until_the_next_one_leads(
    pair: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    first, _ = pair
    with writing(first.url) as connection:
        token = add_api_token(connection, "shop", emitter="emitter_1", at=SystemClock().now())
    front, back = (",".join(told_address(daemon, part) for daemon in pair) for part in ("front", "back"))
    options = {"http": {"listen": "127.0.0.1:0", "front": front, "back": back}}
    with serving_http(write_config(tmp_path / "gate.ini", first.url, options)) as address:

        def post(number: int) -> int:
            credentials = b64encode(f"{token}:".encode()).decode()
            headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/x-ndjson"}
            url = f"{address}/v1/types/test_event/envelopes"
            try:
                with urlopen(Request(url, f'"{number}"\n'.encode(), headers)) as answer:
                    return int(answer.status)
            except HTTPError as error:
                with error:
                    return error.code

        await asyncio.to_thread(wait_until, lambda: post(0) == 201, "the broker knows the token")
        under_way = asyncio.gather(*(asyncio.to_thread(post, number) for number in range(1, 5)))
        first.kill()
        later = await asyncio.to_thread(post, 5)
        assert {*await under_way, later} == {201}


def test_each_one_tells_at_its_page_who_leads(postgres_url: str, tmp_path: Path) -> None:
    add_bus(postgres_url, GRAPH)
    ports = [free_port(), free_port()]
    first, second = (
        Daemon(
            tmp_path / str(port),
            postgres_url,
            {"broker": {"standby": "true", "name": port}, "metrics": {"listen": f"127.0.0.1:{port}"}},
        )
        for port in ports
    )
    try:
        first.start()
        second.begin()
        wait_until(lambda: "standing by" in second.log, "the second one stands by")
        wait_until(lambda: len(readiness(ports[0])[1]["brokers"]) == 2, "the leader has seen the other one")
        (code, leader), (refused, other) = map(readiness, ports)
        assert (code, leader["reasons"], refused) == (200, [], 503)
        assert [reason["code"] for reason in other["reasons"]] == ["not_leading"]
        for told in leader, other:
            assert [(each["broker"], each["does"]) for each in told["brokers"]] == [
                (str(ports[0]), "leads"),
                (str(ports[1]), "stands by"),
            ]
        figures = urlopen(f"http://127.0.0.1:{ports[1]}/metrics").read().decode()
        assert 'xbus_brokers{does="stands by"} 1' in figures
    finally:
        first.kill()
        second.kill()


def readiness(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_one_that_stands_by_is_stopped_like_any_other(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    assert second.stop() == 0
    works(first)


@pytest.mark.parametrize("command_line", [True, False])
def test_nobody_stands_by_on_sqlite(sqlite_url: str, tmp_path: Path, command_line: bool) -> None:
    add_bus(sqlite_url, GRAPH)
    config = write_config(tmp_path / "c.ini", sqlite_url, {} if command_line else {"broker": {"standby": "true"}})
    ended = run(script("start_xbusbroker"), "-c", config, *(["--standby"] if command_line else []))
    assert ended.returncode == 1
    assert "[standby_needs_postgresql]" in ended.stderr


def test_one_part_does_not_stand_by_alone(postgres_url: str, tmp_path: Path) -> None:
    add_bus(postgres_url, GRAPH)
    config = write_config(tmp_path / "c.ini", postgres_url)
    ended = run(script("start_xbusbroker"), "-c", config, "--standby", "--only", "front")
    assert ended.returncode == 1
    assert "[standby_apart]" in ended.stderr


def test_one_whose_folder_of_objects_may_be_its_own_does_not_stand_by(postgres_url: str, tmp_path: Path) -> None:
    add_bus(postgres_url, GRAPH)
    config = write_config(tmp_path / "c.ini", postgres_url, {"journal": {"objects": tmp_path / "objects"}})
    ended = run(script("start_xbusbroker"), "-c", config, "--standby")
    assert ended.returncode == 1
    assert "[standby_objects]" in ended.stderr


def test_one_that_is_configured_otherwise_does_not_stand_by(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    first, _ = pair
    differs = {"broker": {"standby": "true", "lease": "4"}}
    ended = run(script("start_xbusbroker"), "-c", write_config(tmp_path / "c.ini", first.url, differs))
    assert ended.returncode == 1
    assert "[standby_differs]" in ended.stderr
    assert "[broker] lease is 4.0 here, and 3.0 for the broker" in ended.stderr
