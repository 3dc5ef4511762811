"""Programs that run a recipient, as whoever starts one meets them: how they end, and what they say while they wait."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.ports import free_port
from tests.support.processes import Process, run, script
from tests.support.waiting import wait_until
from tests.support.ways import WAY
from xbus.emitter import Emitter

EXAMPLES = Path(__file__).parents[2] / "examples"

WRONG = (
    "the login or the password is wrong: check both, or set the password anew; recipients log in here,"
    " emitters at the front's address [login_refused]"
)


@pytest.mark.parametrize("example", ["consumer", "worker", "totals"])
def test_a_role_that_the_bus_does_not_know_ends_a_program_with_one_line(shared: Daemon, example: str) -> None:
    ended = run(sys.executable, EXAMPLES / f"{example}.py", shared.back)

    assert ended.returncode == 1
    assert WRONG in ended.stderr
    assert ended.stderr.count("the login or the password is wrong") == 1
    assert "Traceback" not in ended.stderr


def test_a_wrong_password_ends_the_command_that_runs_a_recipient_in_the_same_way(shared: Daemon) -> None:
    ended = run(
        *(script("xbus"), "recipient", "run", "consumer:Clients", "--back", shared.back, "--login", "c_1"),
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": "wrong"},
    )

    assert ended.returncode == 1
    assert f"recipient c_1: {WRONG}" in ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr


# -- the kind of program and the kind of service -----------------------------------------------------------------------

KINDS = """\
import sys
from xbus.recipient import BulkWorker, Consumer, Worker, run


class AConsumer(Consumer):
    def on_event_start(self, event):
        print("delivered", event.envelope.id, flush=True)

    def commit(self, envelope):
        print("committed", envelope.id, flush=True)


class AWorker(Worker):
    def on_event_start(self, event):
        print("delivered", event.envelope.id, flush=True)


class ABulkWorker(BulkWorker):
    on_event_start = AWorker.on_event_start

    async def make_output(self, handover, progress):
        print("delivered", handover.envelope_id, flush=True)


if __name__ == "__main__":
    run(globals()[sys.argv[1]], sys.argv[2], sys.argv[3], "password")
"""

WRONG_KINDS = [("AWorker", "worker", "store_1"), ("ABulkWorker", "worker", "store_1"), ("AConsumer", "consumer", "w_1")]


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.py"
    path.write_text(KINDS)
    return path


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"test_event": {"w": ["store"], "store": []}})
    return start_daemon(sqlite_url)


def told(kind: str, login: str) -> str:
    """The line by which a program of a kind ends that has the login of the other one."""
    other = {"worker": "consumer", "consumer": "worker"}[kind]
    return (
        f'recipient {login}: the program is a {kind}, and the role "{login}" is of a {other} service,'
        f' "{login.removesuffix("_1")}": give the program the login of a {kind} role,'
        f" or run a {other} with this login [wrong_kind]"
    )


def test_a_recipient_with_the_login_of_a_reader_ends_with_one_line(
    sqlite_url: str, start_daemon: StartDaemon, kinds: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}})
    add_reader(sqlite_url, "billing", "test_event")

    ended = run(sys.executable, kinds, "AConsumer", start_daemon(sqlite_url).back, "billing_1")

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "recipient billing_1: the role is a reader's: its programs ask for what they read, and nothing is delivered to"
        " them: read with xbus.reader, or register as a role of a worker or consumer [role_reads]"
    )


@pytest.mark.parametrize(("program", "kind", "login"), WRONG_KINDS)
def test_a_program_of_the_other_kind_ends_with_one_line_and_gets_nothing(
    daemon: Daemon, kinds: Path, start_process: StartProcess, program: str, kind: str, login: str
) -> None:
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        envelope_id = emitter.put("test_event", [b"1"]).envelope_id

    ended = run(sys.executable, kinds, program, daemon.back, login)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == told(kind, login)
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    # Nothing counts as done: the right programs get the envelope.
    start_process(sys.executable, kinds, "AWorker", daemon.back, "w_1")
    consumer = start_process(sys.executable, kinds, "AConsumer", daemon.back, "store_1")
    wait_until(lambda: f"committed {envelope_id}" in consumer.text, "the consumer has it")


def test_the_command_that_runs_a_recipient_ends_in_the_same_way(daemon: Daemon, kinds: Path) -> None:
    ended = run(
        *(script("xbus"), "recipient", "run", "kinds:AWorker", "--back", daemon.back, "--login", "store_1"),
        *WAY.options,
        cwd=kinds.parent,
        env={"XBUS_PASSWORD": PASSWORD},
    )

    assert ended.returncode == 1
    assert told("worker", "store_1") in ended.stderr.splitlines()


def test_a_program_of_the_other_kind_does_not_take_the_place_of_one_that_serves(
    daemon: Daemon, kinds: Path, start_process: StartProcess
) -> None:
    start_process(sys.executable, kinds, "AWorker", daemon.back, "w_1")
    consumer = start_process(sys.executable, kinds, "AConsumer", daemon.back, "store_1")
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        first = emitter.put("test_event", [b"1"]).envelope_id
        wait_until(lambda: f"committed {first}" in consumer.text, "it serves")

        assert run(sys.executable, kinds, "AWorker", daemon.back, "store_1").returncode == 1

        second = emitter.put("test_event", [b"2"]).envelope_id
        wait_until(lambda: f"committed {second}" in consumer.text, "it serves still")
    assert consumer.runs


async def test_programs_of_before_tell_no_kind_and_are_served(daemon: Daemon) -> None:
    async with (
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "store_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        await consumer.wait_for([await emitter.emit(b"1")])
        assert consumer.items() == [b"1 w_1"]


def test_an_address_that_is_none_ends_a_program_with_one_line() -> None:
    ended = run(sys.executable, EXAMPLES / "consumer.py", "tcp:/127.0.0.1")

    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "write tcp://host:port or ipc://path [bad_address]" in ended.stderr


def test_a_broker_that_is_not_there_yet_is_waited_for_and_the_program_says_so(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    program = Process(sys.executable, EXAMPLES / "consumer.py", address, output=tmp_path / "output")
    try:
        wait_until(lambda: "not registered" in program.text, "it says that it waits")

        assert program.runs
        assert f"{address}: no connection" in program.text
        assert "trying again" in program.text
        assert program.stop() == 0
    finally:
        program.kill()


# -- on_start ----------------------------------------------------------------------------------------------------------

STARTING = """\
import pathlib
import sys
from xbus.errors import ConfigurationError
from xbus.recipient import Consumer


class Late(Consumer):
    def on_start(self):
        if not pathlib.Path("there").exists():
            raise ConnectionError("the database of the shop is away")
        print("started", flush=True)

    def on_stop(self):
        print("stopped", flush=True)


class Never(Consumer):
    def on_start(self):
        raise ConfigurationError("no shop is named", "set SHOP")

    def on_stop(self):
        print("stopped", flush=True)


class Exits(Consumer):
    def on_start(self):
        sys.exit("no shop is named")
"""


@pytest.fixture
def starting(tmp_path: Path) -> Path:
    (tmp_path / "starting.py").write_text(STARTING)
    return tmp_path


def command_of(name: str, back: str, *options: str) -> tuple[str, ...]:
    return (
        script("xbus"),
        "recipient",
        "run",
        f"starting:{name}",
        "--back",
        back,
        "--login",
        "store_1",
        *WAY.options,
        *options,
    )


def test_a_start_that_fails_is_tried_again_and_the_log_says_why_and_when(daemon: Daemon, starting: Path) -> None:
    program = Process(
        *command_of("Late", daemon.back), output=starting / "log", cwd=starting, env={"XBUS_PASSWORD": PASSWORD}
    )
    try:
        said = (
            "on_start failed, trying again in 1 s: ConnectionError: the database of the shop is away (starting.py, line"
        )
        wait_until(lambda: said in program.text, "it says why it has not started")
        wait_until(lambda: "trying again in 2 s" in program.text, "it says so again")
        assert "Traceback" not in program.text

        (starting / "there").touch()
        wait_until(lambda: "action=recipient_registered" in program.text, "it serves")
        assert "started\n" in program.text
        assert program.stop() == 0
        assert "stopped\n" in program.text
    finally:
        program.kill()


def test_a_recipient_that_waits_for_its_start_can_be_stopped(starting: Path) -> None:
    program = Process(
        *command_of("Late", "tcp://127.0.0.1:1"), output=starting / "log", cwd=starting, env={"XBUS_PASSWORD": PASSWORD}
    )
    try:
        wait_until(lambda: "trying again" in program.text, "it waits")
        assert program.stop() == 0
        assert "stopped\n" not in program.text
    finally:
        program.kill()


@pytest.mark.parametrize(
    ("name", "exit_code", "said"),
    [
        ("Late", 3, "on_start failed: ConnectionError: the database of the shop is away (starting.py, line 10)"),
        ("Never", 1, "recipient store_1: no shop is named: set SHOP [bad_configuration]"),
        ("Exits", 1, "on_start failed: the recipient's code raised SystemExit: no shop is named: correct the program"),
    ],
)
def test_a_start_that_fails_for_good_ends_the_program_with_one_line(
    starting: Path, name: str, exit_code: int, said: str
) -> None:
    ended = run(
        *command_of(name, "tcp://127.0.0.1:1", "--start-timeout", "0"), cwd=starting, env={"XBUS_PASSWORD": PASSWORD}
    )

    assert ended.returncode == exit_code, ended.stderr
    assert said in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSING = """\
from xbus.recipient import Consumer, Refusal, Worker


class Choosy(Consumer):
    def on_item(self, event, item):
        if item.data == b"bad":
            raise Refusal("there is no airline XX")
"""


@pytest.mark.parametrize("events", [1, 2])
def test_the_log_says_what_was_refused_and_why(
    daemon: Daemon, kinds: Path, tmp_path: Path, start_process: StartProcess, events: int
) -> None:
    (tmp_path / "refusing.py").write_text(REFUSING)
    run_it = (script("xbus"), "recipient", "run", "refusing:Choosy", "--back", daemon.back, "--login", "store_1")
    program = Process(*run_it, *WAY.options, output=tmp_path / "log", cwd=tmp_path, env={"XBUS_PASSWORD": PASSWORD})
    start_process(sys.executable, kinds, "AWorker", daemon.back, "w_1")
    try:
        wait_until(lambda: "action=recipient_registered" in program.text, "it serves")
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter, emitter.envelope() as envelope:
            for _ in range(events):
                with envelope.event("test_event") as event:
                    event.send(b"good")
                    event.send(b"bad")

        wait_until(lambda: "action=recipient_refused" in program.text, "it says that it refused")

        (line,) = [line for line in program.text.splitlines() if "action=recipient_refused" in line]
        assert "the recipient refused item 1 of event " in line
        assert "(test_event): there is no airline XX" in line
        assert f"envelope_id={envelope.receipt.envelope_id} event_id=" in line
        assert "event_type=test_event indices=1" in line
    finally:
        program.kill()


def test_the_log_of_a_recipient_is_json_on_request(starting: Path) -> None:
    ended = run(
        *command_of("Late", "tcp://127.0.0.1:1", "--start-timeout", "0.5"),
        cwd=starting,
        env={"XBUS_PASSWORD": PASSWORD, "XBUS_LOGGING__FORMAT": "json"},
    )

    records = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [(record["level"], record.get("code")) for record in records] == [
        ("WARNING", None),
        ("CRITICAL", "recipient_not_started"),
    ]
    assert records[0]["action"] == "recipient_not_started"
    assert ended.returncode == 3


# -- a program of its own ----------------------------------------------------------------------------------------------

COLLECTED = """\
import gc, sys
from xbus.recipient import Consumer, run


class Looks(Consumer):
    def on_start(self):
        print(gc.get_freeze_count() > 0, gc.get_threshold()[0] > 700)
        sys.exit()


run(Looks, "tcp://127.0.0.1:9", "c_1", "password")
"""


def test_a_program_that_is_a_recipient_looks_for_cycles_less_often() -> None:
    assert run(sys.executable, "-c", COLLECTED).stdout == "True True\n"
