"""A broker with encrypted addresses beside plain ones, and who gets in by which key."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.operating import run_xbus, xbus
from tests.support.ports import free_port
from tests.support.processes import Process, run, script
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.emitter import AsyncEmitter, Emitter
from xbus.errors import Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.curve import new_pair, read_pair

RETRY_SECONDS = 5.0
"""More than a new key takes until it is in force, and the client connects again."""

CURVE = {"zmq": {"frontsocket.curve": "tcp://127.0.0.1:0", "backsocket.curve": "tcp://127.0.0.1:0"}}


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> Daemon:
    add_bus(sqlite_url, {"numbers": {"c": []}})
    run_key = run(script("xbus"), "keys", "new", tmp_path / "server.key")
    assert run_key.returncode == 0, run_key.stderr
    return start_daemon(sqlite_url, {**CURVE, "curve": {"key_file": tmp_path / "server.key"}})


class Keys:
    """Key files of clients, and addresses with them."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self._daemon = daemon
        self._folder = folder

    async def new(self, name: str, *logins: tuple[str, str]) -> str:
        """Make a key that some logins may use; give its public key."""
        made = await xbus(self._daemon, "keys", "new", self.file(name))
        for kind, login in logins:
            await xbus(self._daemon, "keys", "allow", kind, login, self.file(name))
        return made.strip()

    def file(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    async def front(self, name: str, login: str = "") -> str:
        """The front's address for the holder of a key."""
        return await self._address(self._daemon.encrypted_front, name, login)

    async def back(self, name: str, login: str = "") -> str:
        """The back's address for the holder of a key."""
        return await self._address(self._daemon.encrypted_back, name, login)

    async def _address(self, place: str, name: str, login: str) -> str:
        server = (await xbus(self._daemon, "keys", "show")).strip()
        return f"xbus://{login}{'@' * bool(login)}{place}?key={server}&client_key={self.file(name)}"


@pytest.fixture
def keys(daemon: Daemon, tmp_path: Path) -> Keys:
    return Keys(daemon, tmp_path)


async def send(address: str, login: str, **options: Any) -> str:
    """Send an envelope; give its id."""
    async with AsyncEmitter(address, login, PASSWORD, **options) as emitter:
        return (await emitter.put("numbers", [1, 2])).envelope_id


async def test_emitter_and_recipient_with_keys_work_beside_those_without(daemon: Daemon, keys: Keys) -> None:
    await keys.new("emitter", ("emitter", "emitter_1"))
    await keys.new("role", ("role", "c_1"))
    consumer = Keeps()
    async with serving(daemon, "c_1", consumer, back=await keys.back("role")):
        sealed = await send(await keys.front("emitter"), "emitter_1")
        plain = (await emit(daemon, send_numbers(2_000))).envelope_id
        for envelope_id in (sealed, plain):
            await become(daemon.url, envelope_id, c_1="done")
    assert consumer.committed[sealed] == [(0, 1), (1, 2)]
    assert len(consumer.committed[plain]) == 2_000
    assert "key_revoked" not in daemon.log


async def test_login_and_password_come_from_address_and_environment(
    daemon: Daemon, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await keys.new("emitter", ("emitter", "emitter_1"))
    address = await keys.front("emitter", "emitter_1")
    monkeypatch.setenv("XBUS_PASSWORD", PASSWORD)

    def put() -> int:
        with Emitter(address) as emitter:
            return emitter.put("numbers", [1]).items

    assert await asyncio.to_thread(put) == 1
    monkeypatch.delenv("XBUS_PASSWORD")
    (tmp_path / "items.jsonl").write_text("1\n2\n")
    (tmp_path / "password").write_text(PASSWORD)
    url = f"{address}&password_file={tmp_path / 'password'}"
    told = await xbus(daemon, "emit", tmp_path / "items.jsonl", "--type", "numbers", "--url", url)
    assert told.startswith("2 items sent")
    assert "healthy" in await xbus(daemon, "health", "--url", url)


async def test_a_key_logs_in_only_as_those_that_it_is_allowed_for(daemon: Daemon, keys: Keys) -> None:
    await keys.new("one", ("emitter", "emitter_1"))
    await keys.new("two", ("emitter", "emitter_2"))
    assert await send(await keys.front("two"), "emitter_2")
    with pytest.raises(Refused, match="not allowed for the login") as refused:
        await send(await keys.front("one"), "emitter_2")
    assert refused.value.code == "key_not_allowed"


async def test_a_login_without_keys_does_not_get_in_encrypted(daemon: Daemon, keys: Keys) -> None:
    await keys.new("one", ("emitter", "emitter_1"))
    with pytest.raises(Refused) as refused:
        await send(await keys.front("one"), "emitter_2")
    assert refused.value.code == "key_not_allowed"


async def test_a_key_of_an_emitter_does_not_reach_the_back(daemon: Daemon, keys: Keys) -> None:
    await keys.new("one", ("emitter", "emitter_1"))
    asked = await run_xbus(daemon, "health", "--url", await keys.back("one"))
    assert asked.returncode == 3
    assert "our key is not allowed there" in asked.stderr


async def test_a_revoked_key_loses_connection_and_session(daemon: Daemon, keys: Keys) -> None:
    await keys.new("emitter", ("emitter", "emitter_1"))
    await keys.new("role", ("role", "c_1"))
    address = await keys.front("emitter")
    async with AsyncEmitter(address, "emitter_1", PASSWORD, retry_seconds=RETRY_SECONDS) as emitter:
        async with serving(daemon, "c_1", Keeps(), back=await keys.back("role")):
            await become(daemon.url, (await emitter.put("numbers", [1])).envelope_id, c_1="done")
            for name in ("emitter", "role"):
                assert "has lost the key" in await xbus(daemon, "keys", "revoke", keys.file(name))
            await eventually(lambda: daemon.log.count("code=key_revoked") == 2, "both are cut off")
            with pytest.raises(Failed) as failed:
                await emitter.put("numbers", [1])
            assert failed.value.code == "key_refused"
            waiting = await send(daemon.front, "emitter_1")
            await become(daemon.url, waiting, c_1="owed")
            await xbus(daemon, "keys", "allow", "role", "c_1", keys.file("role"))
            await become(daemon.url, waiting, c_1="done")


async def test_the_broker_refuses_a_key_file_that_others_read(daemon: Daemon, tmp_path: Path) -> None:
    assert daemon.stop() == 0
    (tmp_path / "server.key").chmod(0o644)
    ended = await asyncio.to_thread(run, script("start_xbusbroker"), "-c", daemon.config)
    assert ended.returncode == 1
    assert "chmod 600" in ended.stderr
    assert "key_file_open_to_others" in ended.stderr


async def test_setting_up_makes_the_key_file_that_the_configuration_needs(tmp_path: Path, sqlite_url: str) -> None:
    config = tmp_path / "config.ini"
    config.write_text(
        f"[database]\nsqlalchemy.dburi = {sqlite_url}\n[zmq]\nfrontsocket.curve = tcp://*:1985\n"
        "[curve]\nkey_file = bus.key\n"
    )
    for _ in range(2):
        done = await asyncio.to_thread(run, script("setup_xbusbroker"), "-c", config)
        assert done.returncode == 0, done.stderr
    assert os.stat(tmp_path / "bus.key").st_mode & 0o777 == 0o600


async def test_a_plain_address_for_other_machines_must_be_allowed(daemon: Daemon, tmp_path: Path) -> None:
    assert daemon.stop() == 0
    text = daemon.config.read_text()
    port = daemon.front.rpartition(":")[2]
    daemon.config.write_text(text.replace(f"frontsocket = {daemon.front}", f"frontsocket = tcp://*:{port}"))
    ended = await asyncio.to_thread(run, script("start_xbusbroker"), "-c", daemon.config)
    assert ended.returncode == 1
    assert "plaintext_refused" in ended.stderr
    assert "allow_plaintext = true" in ended.stderr
    checked = await run_xbus(daemon, "config", "check")
    assert checked.returncode == 1
    assert "plaintext_refused" in checked.stderr


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def listening(daemon: Daemon, keys: Keys, start_process: StartProcess) -> tuple[Process, str]:
    """A recipient with keys, in a process of its own, that listens at an address."""
    await keys.new("role", ("role", "c_1"))
    place = f"127.0.0.1:{free_port()}"
    process = start_process(
        *(script("xbus"), "recipient", "run", "consumer:Clients", "--login", "c_1"),
        *("--back", await keys.back("role"), "--bind", f"tcp://{place}"),
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": PASSWORD},
    )
    await eventually(lambda: "registered" in process.text or not process.runs, "it is registered")
    assert process.runs, process.text
    return process, place


async def test_a_recipient_with_keys_that_listens_is_reached_by_the_broker(
    daemon: Daemon, listening: tuple[Process, str]
) -> None:
    process, _ = listening
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        sealed = await emitter.put("numbers", [{"id": 1, "name": "first"}])
        await become(daemon.url, sealed.envelope_id, c_1="done")
        await asyncio.to_thread(daemon.restart)
        await become(daemon.url, (await emitter.put("numbers", [{"id": 2, "name": "second"}])).envelope_id, c_1="done")
    assert "client: first" in process.text
    assert "client: second" in process.text


async def test_nobody_else_reaches_a_recipient_with_keys_that_listens(
    daemon: Daemon, keys: Keys, listening: tuple[Process, str]
) -> None:
    process, place = listening
    own = read_pair(keys.file("role")).public
    context = new_context()
    try:
        for address, code in (
            (f"tcp://{place}", "handshake_failed"),
            (f"xbus://{place}?key={new_pair().public}&client_key={keys.file('role')}", "handshake_failed"),
            (f"xbus://{place}?key={own}&client_key={keys.file('role')}", "key_refused"),
        ):
            client = Client(context, name="somebody")
            client.connect(address)
            with pytest.raises(Failed) as failed:
                await client.call("ping", "token", timeout=DEADLINE_SECONDS)
            assert failed.value.code == code
            client.close()
    finally:
        context.destroy(linger=0)
    assert process.runs
