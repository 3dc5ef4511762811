"""``xbus health`` tells what does not get on: bad while it does not, and good again once it does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus, xbus
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import answered
from xbus.recipient import Consumer, Envelope, Event, Item, Refusal, Worker

SOON: Options = {"health": {"interval": 0.1, "absent_minutes": 0, "open_minutes": 0}, "back": {"worker_grace": 0.1}}
"""Health tells at once."""


class Passes(Worker):
    """Answers what it gets."""

    def on_item(self, event: Event, item: Item) -> Iterator[Any]:
        yield item.value


class Refuses(Consumer):
    """Refuses each envelope until it is told otherwise."""

    def __init__(self) -> None:
        self.refuses = True

    def commit(self, envelope: Envelope) -> None:
        if self.refuses:
            raise Refusal("not today")


async def told(daemon: Daemon, *urls: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """The exit code of ``xbus health``, and the problems by their code and what they are about.

    Args:
        urls: asks at these addresses only, one after the other.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    code = 0
    asked: list[tuple[str, ...]] = [("--url", url) for url in urls]
    for options in asked or [()]:
        done = await run_xbus(daemon, "health", "--json", *options)
        code = max(code, done.returncode)
        for report in map(json.loads, done.stdout.splitlines()):
            found |= {(problem["code"], problem["about"]): problem for problem in report["problems"]}
    return code, found


async def becomes_bad(daemon: Daemon, code: str, about: str, figure: str, *urls: str) -> dict[str, Any]:
    """Wait until health tells of a problem with a figure in its cause, and of nothing else."""

    async def ask() -> dict[str, Any]:
        exit_code, problems = await told(daemon, *urls)
        problem = problems.get((code, about), {"cause": ""})
        if figure not in problem["cause"] or len(problems) > 1:
            return {}
        assert exit_code == 1
        assert "since 20" in problem["cause"]
        return problem

    return await answered(ask, f"health tells of {code} with {figure!r}")


async def becomes_good(daemon: Daemon, *urls: str) -> None:
    async def ask() -> bool:
        return await told(daemon, *urls) == (0, {})

    await answered(ask, "health is good")


async def test_a_worker_is_gone_and_all_waits(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"pass": ["store"], "store": []}})
    daemon = start_daemon(database_url, SOON)
    keeps = Keeps()
    async with serving(daemon, "store_1", keeps):
        receipts = [await emit(daemon, send_numbers(3)) for _ in range(2)]
        problem = await becomes_bad(daemon, "worker_absent", "pass", "2 envelopes wait for one")
        assert problem["next_step"].startswith("start a worker for pass_1")
        async with serving(daemon, "pass_1", Passes()):
            await becomes_good(daemon)
            for receipt in receipts:
                await become(database_url, receipt.envelope_id, store_1="done")


async def test_a_consumer_is_away_and_owed_something(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url, SOON)
    async with serving(daemon, "store_1", Keeps()):
        receipt = await emit(daemon, send_numbers(3))
        await become(database_url, receipt.envelope_id, store_1="done")
    await becomes_good(daemon)
    for _ in range(2):
        await emit(daemon, send_numbers(3))
    problem = await becomes_bad(daemon, "consumer_absent", "store_1", "2 envelopes wait for it")
    assert "xbus recipient detach store_1" in problem["next_step"]
    text = await run_xbus(daemon, "health")
    assert text.returncode == 1
    assert "consumer_absent" in text.stdout
    async with serving(daemon, "store_1", Keeps()):
        await becomes_good(daemon)


async def test_something_is_parked(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url, SOON)
    refuses = Refuses()
    async with serving(daemon, "store_1", refuses):
        receipt = await emit(daemon, send_numbers(3))
        problem = await becomes_bad(daemon, "parked", "store_1", "1 envelope is parked")
        assert "xbus parked list --role store_1" in problem["next_step"]
        refuses.refuses = False
        await xbus(daemon, "parked", "resume", receipt.envelope_id)
        await becomes_good(daemon)
        await become(database_url, receipt.envelope_id, store_1="done")


async def test_an_envelope_stays_open(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url, SOON)
    async with OldConsumer(daemon.back, "c_1"), OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"x")
        problem = await becomes_bad(daemon, "open_too_long", "emitter_1", "1 envelope")
        assert "xbus envelope list --state open" in problem["next_step"]
        await emitter.call.end_event(emitter.token, envelope_id, event_id)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await becomes_good(daemon)


async def test_a_role_says_for_itself_when_health_is_to_tell(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"numbers": {"store": [], "late": []}})
    daemon = start_daemon(sqlite_url, SOON)
    await emit(daemon, send_numbers(3))
    bus = daemon.config.with_name("bus.toml")
    exported = await xbus(daemon, "export")
    late = 'login = "late_1"\nservice = "late"\n'
    assert late in exported
    bus.write_text(exported.replace(late, f'{late}absent_minutes = "never"\nparked_minutes = 2.5\n'))
    assert 'change role "late_1": absent_minutes, parked_minutes' in await xbus(daemon, "apply", bus)
    assert await xbus(daemon, "export") == bus.read_text()
    await becomes_bad(daemon, "consumer_absent", "store_1", "1 envelope waits for it")


async def test_front_and_back_in_two_processes(postgres_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(postgres_url, {"test_event": {"c": []}})
    options = {**SOON, "zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    front = start_daemon(postgres_url, options, only="front")
    back = start_daemon(postgres_url, options, only="back")
    urls = (front.front, back.back)
    async with OldEmitter(front.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"x")
        await becomes_bad(front, "open_too_long", "emitter_1", "1 envelope", *urls)
        await emitter.call.end_event(emitter.token, envelope_id, event_id)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await becomes_bad(front, "consumer_absent", "c_1", "1 envelope waits", *urls)
        async with OldConsumer(back.back, "c_1"):
            await becomes_good(front, *urls)


async def test_the_broker_is_away(sqlite_url: str, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(sqlite_url)
    assert daemon.stop() == 0
    text = await run_xbus(daemon, "health")
    assert (text.returncode, text.stdout) == (3, "")
    assert "the front can't be reached, so nothing is taken from emitters" in text.stderr
    assert "the back can't be reached, so nothing is delivered" in text.stderr
    assert text.stderr.count("start_xbusbroker starts it") == 2
    code, problems = await told(daemon)
    assert (code, set(problems)) == (3, {("unreachable", "front"), ("unreachable", "back")})
