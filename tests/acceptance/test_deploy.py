"""The files of ``deploy/``: as much of them is tried as the machine has tools for."""

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.daemon import write_config
from tests.support.documentation import CHECKOUT
from tests.support.postgres import Server as PostgresServer
from tests.support.postgres import find_programs
from tests.support.processes import run, script
from tests.support.waiting import wait_until
from xbus.config import load
from xbus.config.plaintext import plaintext_problems

DEPLOY = CHECKOUT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PAGE = (CHECKOUT / "docs" / "production.md").read_text(encoding="utf-8")

MOST_EXPOSED = 20
"""Tenths of what ``systemd-analyze security`` calls the exposure of a unit; without hardening it is 92."""


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return found


# -- systemd -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_a_unit(unit: Path, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    here = tmp_path / unit.name
    # The programs of this environment stand in for those that the page installs.
    here.write_text(unit.read_text().replace("/opt/xbus/bin", str(Path(script("xbus")).parent)))

    verified = run(analyze, "verify", str(here))

    told = [line for line in verified.stderr.splitlines() if unit.stem.partition("@")[0] in line]
    assert (verified.returncode, told) == (0, [])


def test_the_broker_is_let_do_little(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    if int(re.findall(r"systemd (\d+)", run(analyze, "--version").stdout)[0]) < 250:
        pytest.skip("systemd before 250 judges no files")
    unit = DEPLOY / "systemd" / "xbus-broker.service"
    judged = run(analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert judged.returncode == 0, judged.stdout[-200:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_gives_commands_that_exist(unit: Path) -> None:
    for command in re.findall(r"^ExecStart(?:Pre)?=/opt/xbus/bin/(.*)$", unit.read_text(), re.MULTILINE):
        program, *arguments = shlex.split(command)
        words = [argument for argument in arguments if re.fullmatch(r"[a-z]+", argument)]
        explained = run(script(program), *words, "--help")
        assert explained.returncode == 0
        assert all(option in explained.stdout for option in arguments if option.startswith("-")), command


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_stays_down_where_another_start_is_of_no_use(unit: Path) -> None:
    """A wrong configuration ends a program with 2; a broker that another one has replaced ends with 4."""
    prevented = "2 4" if unit.stem == "xbus-broker" else "2"
    assert re.findall(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE) == [prevented]


@pytest.mark.parametrize("name", ["xbus-broker", "xbus-http", "xbus-monitor"])
def test_a_unit_of_many_connections_may_open_more_files_than_usual(name: str) -> None:
    """The usual 1024 are less than the connections that these programs let in."""
    (most,) = re.findall(r"^LimitNOFILE=(\d+)$", (DEPLOY / "systemd" / f"{name}.service").read_text(), re.MULTILINE)
    assert int(most) >= 65_536


def test_the_page_installs_what_is_pinned_with_hashes() -> None:
    """Only the wheel has no hash: it is built there, by pinned tools, and brings no other package."""
    pip = [line.partition("/bin/pip ")[2] for line in PAGE.splitlines() if "/bin/pip " in line]
    assert pip == [
        "install --require-hashes --requirement requirements/server.txt",
        "install --require-hashes --requirement requirements/build.txt",
        "wheel --no-deps --no-build-isolation --wheel-dir dist .",
        "install --no-deps --no-index dist/xbusd-*.whl",
    ]
    assert re.findall("pip install", PAGE.replace("/bin/pip ", "")) == [], "no other way is shown"


WATCHED = {"WATCHDOG_USEC": "200000"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator["Manager"]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield Manager(listener)


class Manager:
    """In the place of systemd."""

    def __init__(self, listener: socket.socket) -> None:
        self.told: list[str] = []
        self._listener = listener

    def was_told(self, state: str) -> bool:
        while True:
            try:
                self.told.extend(self._listener.recv(4096).decode().splitlines())
            except BlockingIOError:
                return state in self.told


def test_systemd_is_told_that_the_broker_is_ready_alive_and_about_to_stop(
    sqlite_url: str, tmp_path: Path, manager: Manager, start_process: StartProcess
) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url)
    broker = start_process(
        script("start_xbusbroker"), "-c", str(config), env=WATCHED | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    )

    wait_until(lambda: manager.was_told("READY=1"), "it is ready")
    assert "STATUS=ready: back at tcp://127.0.0.1:" in "\n".join(manager.told)
    wait_until(lambda: manager.was_told("WATCHDOG=1"), "it is alive")
    assert "STOPPING=1" not in manager.told
    assert broker.stop() == 0
    wait_until(lambda: manager.was_told("STOPPING=1"), "it is about to stop")
    assert manager.told.index("READY=1") < manager.told.index("STOPPING=1")


def test_systemd_is_told_that_a_broker_that_stands_by_is_alive(
    postgres_url: str, tmp_path: Path, manager: Manager, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    start_daemon(postgres_url)
    config = write_config(tmp_path / "config.ini", postgres_url)
    environment = WATCHED | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    start_process(script("start_xbusbroker"), "-c", str(config), "--standby", env=environment)
    wait_until(lambda: manager.was_told("STATUS=stands by"), "it stands by")
    wait_until(lambda: manager.was_told("WATCHDOG=1"), "it is alive")


# -- containers --------------------------------------------------------------------------------------------------------


def instructions(name: str) -> list[str]:
    """Those of the Dockerfile with this name."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.partition(" ")[2].strip() for line in text.splitlines() if line.split(" ")[0] == name]


def test_the_image_has_what_the_program_needs_and_no_root() -> None:
    copied = [
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
        if source[0] != "-"
    ]
    assert [source for source in copied if not (CHECKOUT / source).exists()] == []
    # All that the wheel is made of, so that the build finds it.
    assert {"xbus", "alembic", "spark_worker", "pyspark_xbus.py", "pyproject.toml", "README.md", "LICENSE"} <= {*copied}
    assert instructions("USER") == ["1984:1984"]
    assert [base.split()[0] for base in instructions("FROM")] == ["${PYTHON_IMAGE}"] * 2
    installing = [line for line in instructions("RUN") if "pip install" in line]
    assert [line for line in installing if "--require-hashes" not in line and "--no-index" not in line] == []
    (health,) = instructions("HEALTHCHECK")
    command = json.loads(health.partition("CMD ")[2])
    assert command[:2] == ["sh", "-c"]
    assert run("sh", "-n", "-c", command[2]).returncode == 0
    (start,) = instructions("CMD")
    (program,) = json.loads(start)
    assert os.access(DEPLOY / program, os.X_OK)
    assert f"deploy/{program}" in copied


def test_the_configuration_of_the_image_is_one() -> None:
    config = load(DEPLOY / "config.ini")
    assert "password" not in config.database.url
    exposed = {port for line in instructions("EXPOSE") for port in line.split()}
    zmq = config.zmq
    addresses = (zmq.frontsocket, zmq.encrypted_front, zmq.backsocket, zmq.encrypted_back)
    assert {
        address.rpartition(":")[2] for address in (*addresses, config.http.listen, config.monitor.listen)
    } == exposed
    assert [*plaintext_problems(config)] == []


def test_compose_opens_ports_to_this_machine_alone_and_keeps_no_password() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    ports = re.findall(r'- "([\d.:]+)"', text)
    assert ports == [f"127.0.0.1:{port}:{port}" for port in (1984, 4891, 1985, 4892, 8484, 8085)]
    passwords = re.findall(r"PASSWORD: (.*)$", text, re.MULTILINE)
    assert {password.partition(":?")[0] for password in passwords} == {"${XBUS_DB_PASSWORD"}
    (dockerfile,) = re.findall(r"dockerfile: (.*)$", text, re.MULTILINE)
    assert (DEPLOY / ".." / dockerfile).exists()


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_container_ends_with_the_code_of_its_broker(code: int, tmp_path: Path) -> None:
    path = _programs(tmp_path, f"exit {code}")
    assert run(str(DEPLOY / "start-broker.sh"), env={"PATH": path, "XBUS_CONFIG": "c.ini"}).returncode == code


def test_the_container_passes_signals_on(tmp_path: Path, start_process: StartProcess) -> None:
    path = _programs(tmp_path, 'trap "echo stopping; exit 7" TERM; echo serving; while :; do sleep 0.05; done')
    container = start_process(str(DEPLOY / "start-broker.sh"), env={"PATH": path, "XBUS_CONFIG": "c.ini"})
    wait_until(lambda: "serving" in container.text, "the broker serves", 30)
    assert container.stop() == 7
    assert "stopping" in container.text


def test_the_container_of_a_replaced_broker_stays_down(tmp_path: Path, start_process: StartProcess) -> None:
    path = _programs(tmp_path, "echo started; exit 4")
    container = start_process(str(DEPLOY / "start-broker.sh"), env={"PATH": path, "XBUS_CONFIG": "c.ini"})
    wait_until(lambda: "another broker has this journal" in container.text, "it says so", 30)
    assert container.runs
    assert container.stop() == 0
    assert container.text.count("started") == 1


def _programs(folder: Path, broker: str) -> str:
    """Make programs in the place of the bus's own, of which the broker runs a script; the PATH with them."""
    for name, script_text in (("setup_xbusbroker", "exit 0"), ("start_xbusbroker", broker)):
        (folder / name).write_text(f"#!/bin/sh\n{script_text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize(("name", "broker"), [("compose.yaml", "broker"), ("ha/compose.yaml", "bus-2")])
def test_compose_understands_its_files(name: str, broker: str) -> None:
    docker = tool("docker")
    if run(docker, "compose", "version").returncode != 0:
        pytest.skip("this docker has no compose")
    environment = dict.fromkeys(("XBUS_DB_PASSWORD", "XBUS_SUPERUSER_PASSWORD", "XBUS_REPLICATION_PASSWORD"), "secret")
    read = run(docker, "compose", "-f", str(DEPLOY / name), "config", "--format", "json", env=environment)
    assert read.returncode == 0, read.stderr
    (waits,) = json.loads(read.stdout)["services"][broker]["depends_on"].values()
    assert waits["condition"] in ("service_healthy", "service_completed_successfully")


PINNED = re.compile(r"docker\.io/library/(\w+):([\w.-]+)@sha256:[0-9a-f]{64}")


def pinned_images(deploy: Path) -> dict[str, str]:
    """The base images of all that builds and starts containers, by the name of each."""
    files = [deploy / name for name in ("Dockerfile", "compose.yaml", "ha/Dockerfile", "ha/compose.yaml")]
    written = {
        image
        for path in files
        for image in re.findall(r"^(?:ARG \w+_IMAGE=| +image: )(.*)$", path.read_text(), re.MULTILINE)
    }
    pins = {image: PINNED.fullmatch(image) for image in written - {"xbus", "xbus-database"}}
    assert None not in pins.values(), f"{pins} are not all pinned by a digest"
    assert len(pins) == len({pin[1] for pin in pins.values() if pin is not None}), "all files take the same images"
    return {pin[1]: image for image, pin in pins.items() if pin is not None}


HA = (DEPLOY / "ha" / "compose.yaml").read_text()


def test_the_pattern_of_several_machines_names_what_exists() -> None:
    assert re.findall(r'"([\d.]+:\d+):\d+"', HA) == [f"127.0.0.1:{port}" for port in (1984, 4891, 2984, 5891)]
    passwords = re.findall(r"PASSWORD: (.*)$", HA, re.MULTILINE)
    assert passwords
    assert [password for password in passwords if not re.fullmatch(r"\$\{XBUS_\w+:\?write it .*\}", password)] == []
    files = {*re.findall(r"dockerfile: (.*)$", HA, re.MULTILINE), "deploy/config.ini", "deploy/patroni/patroni.yml"}
    assert [name for name in files if not (CHECKOUT / name).exists()] == []
    url = re.findall(r"SQLALCHEMY_DBURI: (.*)$", HA, re.MULTILINE)[0]
    services = re.findall(r"^  (\w+-\d):\n    <<: \*(\w+)$", HA, re.MULTILINE)
    assert [f"{name}:5432" for name, kind in services if kind == "database"] == re.findall(r"[\w-]+:5432", url)
    assert len([name for name, kind in services if kind == "broker"]) == 2


def test_the_pattern_makes_its_journal_once(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Its service may end and start again at any moment."""
    script_text = HA.partition("      - |\n")[2].partition("\n\n")[0].replace("$$", "$")
    url = postgres_server.create_empty().replace("+psycopg2", "")
    (server,) = re.findall(r"'(host=db-1[^']*)'", script_text)
    # The server is that of all tests, so the names are this test's.
    name = f"xbus_{secrets.token_hex(4)}"
    script_text = re.sub(r"\bxbus\b", name, textwrap.dedent(script_text)).replace(server, url)
    environment = {"XBUS_DB_PASSWORD": "it's secret", "PATH": f"{find_programs()}:{os.environ['PATH']}"}
    try:
        for _ in range(2):
            made = subprocess.run(
                ["sh", "-ec", script_text], env=environment, capture_output=True, text=True, check=False
            )
            assert made.returncode == 0, made.stderr
        parts = urlsplit(url)
        owner = parts._replace(netloc=f"{name}:it%27s%20secret@{parts.netloc.partition('@')[2]}", path=f"/{name}")
        psycopg2.connect(urlunsplit(owner)).close()
    finally:
        with closing(psycopg2.connect(url)) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"DROP DATABASE IF EXISTS {name}")
            connection.cursor().execute(f"DROP ROLE IF EXISTS {name}")
        postgres_server.drop(url)


def test_patroni_keeps_what_is_acknowledged_on_two_machines() -> None:
    settings = dict(re.findall(r"^ +(\w+): (\S+)$", (DEPLOY / "patroni" / "patroni.yml").read_text(), re.MULTILINE))
    assert settings["synchronous_mode"] == "true"
    # A primary without etcd has to stop before its lock ends.
    assert int(settings["ttl"]) >= int(settings["loop_wait"]) + 2 * int(settings["retry_timeout"])


def test_every_base_image_is_pinned_by_its_digest() -> None:
    images = pinned_images(DEPLOY)
    assert images.keys() == {"python", "postgres"}
    assert "-slim@" in images["python"]


def test_make_images_pins_the_newest_ones(tmp_path: Path) -> None:
    """A program that answers as ``docker buildx imagetools`` does stands in for the registry."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    shutil.copy(CHECKOUT / "Makefile", tmp_path)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\nprintf "sha256:"\nprintf %s "$4" | sha256sum | cut -d " " -f 1\n')
    docker.chmod(0o755)
    made = run("make", "-C", str(tmp_path), "images", env={"PATH": f"{docker.parent}:{os.environ['PATH']}"})
    assert made.returncode == 0, made.stderr
    before, after = pinned_images(DEPLOY), pinned_images(tmp_path / "deploy")
    for name, image in before.items():
        tag = image.partition("@")[0]
        assert after[name] == f"{tag}@sha256:{hashlib.sha256(tag.encode()).hexdigest()}"


def test_the_image_is_built() -> None:
    """Where an engine and the base image are there already: a test downloads no image."""
    engine = tool("buildah")
    base = instructions("ARG")[0].removeprefix("PYTHON_IMAGE=")
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    if subprocess.run([engine, "inspect", base], capture_output=True, env=environment, check=False).returncode:
        pytest.skip(f"the image {base} is not on this machine")
    built = run(
        engine, "bud", "--pull=never", "-f", DEPLOY / "Dockerfile", "-t", "xbus-test", CHECKOUT, env=environment
    )
    assert built.returncode == 0, built.stderr[-2000:]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_names_every_file() -> None:
    files = {path.relative_to(CHECKOUT).as_posix() for path in DEPLOY.rglob("*") if path.is_file()}
    named = {name for name in files if name in PAGE or Path(name).name in PAGE}
    assert files - {"deploy/.env"} == named - {"deploy/.env"}


def test_the_page_installs_what_there_is() -> None:
    named = set(re.findall(r"deploy/[\w./@-]*\w", PAGE)) - {"deploy/.env"}
    assert [name for name in named if not (CHECKOUT / name).exists()] == []
