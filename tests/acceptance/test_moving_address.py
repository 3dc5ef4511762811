"""Old programs know one address: that of a proxy before two brokers, or one that moves to the broker that leads."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartProcess
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.documentation import CHECKOUT
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.ports import free_port
from tests.support.processes import module, run
from tests.support.waiting import wait_until

HAPROXY = CHECKOUT / "deploy" / "haproxy" / "haproxy.cfg"
KEEPALIVED = CHECKOUT / "deploy" / "keepalived" / "keepalived.conf"
LEADS = KEEPALIVED.with_name("leads.sh")
SOCKETS = {"front": "1984", "back": "4891"}
"""The ports of the configuration of HAProxy, by the part of the broker."""

CALL_SECONDS = 5.0
"""How long an old emitter waits for an answer. One that a broker took with it never comes."""


def program(name: str) -> str:
    """Find a program that Debian keeps for administrators, or skip the test."""
    found = shutil.which(name, path="/usr/local/sbin:/usr/sbin:/usr/bin")
    if found is None:
        pytest.skip(f"no {name} to test with: apt-get install {name}")
    return found


@pytest.fixture
def metrics() -> tuple[str, str]:
    """Where the two brokers serve their metrics."""
    return f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, metrics: tuple[str, str]) -> Iterator[list[Daemon]]:
    """One that leads, and one that stands by."""
    add_bus(postgres_url, {"test_event": {"c": []}})
    brokers = [
        Daemon(
            tmp_path / f"bus-{number}",
            postgres_url,
            {
                "broker": {"standby": "true"},
                "metrics": {"listen": listen},
                "zmq": {f"{part}socket": f"tcp://127.0.0.1:{free_port()}" for part in SOCKETS},
            },
        )
        for number, listen in enumerate(metrics, 1)
    ]
    try:
        brokers[0].start()
        brokers[1].begin()
        wait_until(lambda: "standing by" in brokers[1].log, "the second one stands by")
        yield brokers
    finally:
        for broker in brokers:
            broker.kill()


@pytest.fixture
def addresses(
    pair: list[Daemon], metrics: tuple[str, str], tmp_path: Path, start_process: StartProcess
) -> dict[str, str]:
    """The addresses of a proxy before both brokers, by part."""
    haproxy = program("haproxy")
    text, ports = HAPROXY.read_text(), {part: free_port() for part in SOCKETS}
    for part, port in SOCKETS.items():
        text = _replaced(text, f"bind *:{port}", f"bind 127.0.0.1:{ports[part]}")
        for name, broker, listen in zip(("bus-1", "bus-2"), pair, metrics, strict=True):
            socket = re.findall(rf"^{part}socket = tcp://(.*)$", broker.config.read_text(), re.MULTILINE)[0]
            check = f"port {listen.rpartition(':')[2]}"
            text = _replaced(text, f"server {name} {name}:{port}", f"server {name} {socket} {check}")
    config = tmp_path / "haproxy.cfg"
    config.write_text(text)
    checked = run(haproxy, "-c", "-f", config)
    assert checked.returncode == 0, checked.stderr
    start_process(haproxy, "-f", str(config))
    return {part: f"tcp://127.0.0.1:{port}" for part, port in ports.items()}


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(f"{old}\n") == 1, f"the configuration has no line for {old}"
    return text.replace(f"{old}\n", f"{new}\n")


def test_old_programs_are_served_by_the_next_broker_through_a_proxy(
    pair: list[Daemon], addresses: dict[str, str]
) -> None:
    """They keep their sockets, their sessions and their registration. Only the answer under way is lost."""

    async def emit(emitter: OldEmitter) -> str:
        while True:
            try:
                return await emitter.emit(b"x")
            except TimeoutError:
                continue

    async def work() -> None:
        async with OldEmitter(addresses["front"]) as emitter, OldConsumer(addresses["back"], "c_1") as consumer:
            emitter.be_patient_for(CALL_SECONDS)
            await consumer.wait_for([await emit(emitter)])
            pair[0].kill()
            await consumer.wait_for([await emit(emitter)])
            assert pair[1].process.runs
        async with OldEmitter(addresses["front"]) as emitter, OldConsumer(addresses["back"], "c_1") as consumer:
            await consumer.wait_for([await emitter.emit(b"x")])

    asyncio.run(work())


def test_haproxy_understands_the_file_for_the_database(tmp_path: Path) -> None:
    text = re.sub(r"\bdb-\d:", "127.0.0.1:", HAPROXY.with_name("postgresql.cfg").read_text())
    (tmp_path / "postgresql.cfg").write_text(text)
    checked = run(program("haproxy"), "-c", "-f", tmp_path / "postgresql.cfg")
    assert checked.returncode == 0, checked.stderr


def test_an_address_moves_to_the_broker_that_leads(pair: list[Daemon], metrics: tuple[str, str]) -> None:
    def have_it() -> list[int]:
        return [run(LEADS, listen).returncode for listen in metrics]

    assert have_it() == [0, 1]
    assert pair[0].stop() == 0
    pair[1].wait_ready()
    assert have_it() == [1, 0]


@pytest.mark.parametrize(("code", "exit_code"), [("journal_full", 0), ("journal_unavailable", 1), ("stopping", 1)])
def test_a_full_journal_keeps_the_address(
    code: str, exit_code: int, tmp_path: Path, start_process: StartProcess
) -> None:
    """Recipients have to come through, for the journal to have room again."""
    (tmp_path / "readyz").write_text(json.dumps({"ready": False, "reasons": [{"code": code}]}, indent=2))
    port = str(free_port())
    server = start_process(*module("http.server"), "--bind", "127.0.0.1", "--directory", str(tmp_path), port)
    wait_until(lambda: "Serving HTTP" in server.text, "the page is served")
    assert run(LEADS, f"127.0.0.1:{port}").returncode == exit_code


def test_keepalived_understands_its_file(tmp_path: Path) -> None:
    keepalived = program("keepalived")
    networks = sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo")
    if not networks:
        pytest.skip("keepalived needs a network beside that of the machine itself")
    text = _replaced(KEEPALIVED.read_text(), "interface eth0", f"interface {networks[0]}")
    text = _replaced(text, 'script "/etc/keepalived/leads.sh"', f'script "{LEADS}"')
    # keepalived 2.2 ends its own check with a signal where scripts run as another account.
    text = _replaced(text, "script_user nobody", "script_user root")
    (tmp_path / "keepalived.conf").write_text(text)
    checked = run(keepalived, "--config-test", "-f", tmp_path / "keepalived.conf")
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
