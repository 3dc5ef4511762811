"""Bots with the real broker and real runners: what they put, what ends them, and what operators do."""

import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, password_hash
from tests.support.daemon import Daemon
from tests.support.operating import run_command
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus import model
from xbus.admin import bus_file
from xbus.bots.process import PASSED
from xbus.broker.journal.configuration import apply, logins_without_password, make_plan, read_stored, set_password
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.emitter import Emitter

BUS = """\
[[event_type]]
name = "reports"

[[event_type]]
name = "refunds"

[[event_type]]
name = "orders"

[[event_type]]
name = "returns"

[[emitter_profile]]
name = "shops"
event_types = ["orders", "returns"]

[[emitter]]
login = "shop_1"
profile = "shops"

[[service]]
name = "runners"
kind = "runner"

[[role]]
login = "runner_1"
service = "runners"
"""

MODULE = """\
import os, signal, sys, time
from pathlib import Path


def nightly(batch, out):
    print("for", batch.bot, batch.settings["shop"], batch.attempt)
    out.put("reports", ({"row": number} for number in range(3)))
    out.put("refunds", [{"of": str(batch.slot)}])


def broken(batch, out):
    out.put("reports", [b"never"])
    print("something is wrong", file=sys.stderr)
    raise ValueError("no rows")


def crashes(batch, out):
    out.put("reports", [b"never"])
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(batch, out):
    time.sleep(600)


def often(batch, out):
    out.put("reports", [f"{batch.slot.isoformat()} by {os.getpid()} {time.time()}"])
    time.sleep(batch.settings.get("seconds", 0))


def sums(batch, out):
    time.sleep(batch.settings.get("seconds", 0))
    for item in batch.items:
        out.put("reports", [{"of": item.event_type, "value": item.value}])


def refuses(batch, out):
    out.put("reports", [b"never"])
    if not Path("may_go_on").exists():
        raise ValueError("not yet")
    out.put("refunds", [len(batch.items)])


def waits(batch, out):
    while not Path("may_go_on").exists():
        time.sleep(0.05)


def tells_environment(batch, out):
    out.put("reports", [dict(os.environ)])


def leaves_a_child_behind(batch, out):
    if os.fork():
        os._exit(3)
    time.sleep(600)


def prints(batch, out):
    print("x" * 1_000_000)
    print("the end")
"""

Bot = Callable[..., str]


def bot(name: str, **fields: Any) -> str:
    values = {"name": name, "emits": ["reports", "refunds"], **fields}
    shown = {key: json.dumps(value) for key, value in values.items() if key != "settings"}
    settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in fields.get("settings", {}).items())
    return (
        "[[bot]]\n" + "".join(f"{key} = {value}\n" for key, value in shown.items()) + f"settings = {{ {settings} }}\n"
    )


def xbus(daemon: Daemon, *command: str) -> str:
    done = run_command(*command, "-c", daemon.config)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


ALLOWED = ("--allow", "reports_of_test", "--allow", "copies_of_test", "--allow", "nowhere")
"""The modules of the bots that runners of the tests may run."""


class World:
    """A broker with bots, and their runners.

    Args:
        daemon: started.
        folder: has the module of the bots.
        start: starts a program.
    """

    def __init__(self, daemon: Daemon, folder: Path, start: StartProcess) -> None:
        self.daemon = daemon
        self.folder = folder
        self._start = start
        (folder / "reports_of_test.py").write_text(MODULE)

    def runner(self, *options: str) -> Process:
        return self._start(
            *(script("xbus"), "bot", "run", "--login", "runner_1", "--back", self.daemon.back),
            *("--front", self.daemon.front),
            *(options or [*ALLOWED, "--allow-command"]),
            env={"XBUS_PASSWORD": PASSWORD, "SHOP_TOKEN": "s3cret", "TZ": "Europe/Paris"},
            cwd=self.folder,
        )

    def takes_a_run(self, runners: Sequence[Process]) -> Process:
        """Wait until one of them begins another run."""
        before = {runner: runner.text.count("run begins") for runner in runners}
        taking: list[Process] = []

        def begins() -> bool:
            taking[:] = [runner for runner in runners if runner.text.count("run begins") > before[runner]]
            return bool(taking)

        wait_until(begins, "a runner takes a run", 60)
        return taking[0]

    def runs(self) -> Sequence[Any]:
        with reading(self.daemon.url) as connection:
            return connection.execute(sa.select(model.bot_run).order_by(model.bot_run.c.id)).all()

    def ended(self, number: int = 1) -> bool:
        found = self.runs()
        return len(found) >= number and all(run.state in ("done", "failed") for run in found)

    def put(self) -> list[tuple[str, str | None, int]]:
        """Each event that bots have put: its type, the key of its envelope, and how many items it has."""
        with reading(self.daemon.url) as connection:
            rows = connection.execute(
                sa.select(model.event_type.c.name, model.envelope.c.idempotency_key, model.event.c["items"])
                .join(model.event, model.event.c.event_type_id == model.event_type.c.id)
                .join(model.envelope, model.envelope.c.id == model.event.c.envelope_id)
                .where(model.envelope.c.state == "received")
                .order_by(model.envelope.c.position, model.event.c.number)
            )
            return [(name, key, items) for name, key, items in rows]

    def values(self, type_name: str) -> list[Any]:
        """The items of a type, in the order of the log."""
        told = xbus(self.daemon, "read", type_name, "--from", "oldest", "--limit", "1000", "--json")
        return [json.loads(line)["value"] for line in told.splitlines()]

    def send(self, *values: tuple[str, int]) -> None:
        """Send numbers, each with its key."""
        with Emitter(self.daemon.front, "shop_1", PASSWORD) as emitter:
            for key, value in values:
                emitter.put("returns" if key == "r" else "orders", [[key, value]], partition_key=key)


def add_bots(url: str, bots: str) -> None:
    at = SystemClock().now()
    with writing(url) as connection:
        read = bus_file.read((BUS + bots).encode())
        plan = make_plan(read_stored(connection), read.bus)
        assert not [*read.problems, *plan.problems]
        apply(connection, plan, at)
        for kind, login in [*logins_without_password(connection)]:
            set_password(connection, kind, login, password_hash(), at)


@pytest.fixture
def world(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> Callable[[str], World]:
    def make(bots: str) -> World:
        add_bots(sqlite_url, bots)
        return World(start_daemon(sqlite_url), tmp_path, start_process)

    return make


def test_a_bot_puts_all_of_its_output_or_nothing(world: Callable[[str], World]) -> None:
    found = world(
        bot("report", call="reports_of_test:nightly", settings={"shop": "north"})
        + bot("broken", call="reports_of_test:broken", attempts=1)
        + bot("crashes", call="reports_of_test:crashes", attempts=1)
        + bot("hangs", call="reports_of_test:hangs", attempts=1, max_seconds=0.5)
        + bot("lost", call="nowhere:nightly", attempts=1)
        + bot("prints", call="reports_of_test:prints")
        + bot("lines", command=["sh", "-c", """echo '["reports", 1]'; echo '["reports", 2]'; echo $XBUS_BOT >&2"""])
        + bot("nonsense", command=["echo", "no json"], attempts=1)
    )
    runner = found.runner()
    names = ["report", "broken", "crashes", "hangs", "lost", "prints", "lines", "nonsense"]
    for name in names:
        xbus(found.daemon, "bot", "fire", name, "--reason", "to see")
    wait_until(lambda: found.ended(len(names)), "all have ended", 60)
    by_name = dict(zip(names, found.runs(), strict=True))
    assert {name: (run.state, run.code) for name, run in by_name.items()} == {
        "report": ("done", None),
        "broken": ("failed", "run_failed"),
        "crashes": ("failed", "run_crashed"),
        "hangs": ("failed", "run_too_long"),
        "lost": ("failed", "call_not_found"),
        "prints": ("done", None),
        "lines": ("done", None),
        "nonsense": ("failed", "bad_output"),
    }
    put = found.put()
    assert sorted(put) == sorted([("reports", "run 1", 3), ("refunds", "run 1", 1), ("reports", "run 7", 2)])
    assert by_name["report"].log == "for report north 1\n"
    assert "something is wrong" in by_name["broken"].log
    assert by_name["broken"].error == "ValueError: no rows"
    assert by_name["prints"].log.endswith("the end\n")
    assert len(by_name["prints"].log) <= 65_536
    assert by_name["lines"].log == "lines\n"
    assert runner.runs
    assert runner.stop() == 0
    shown = json.loads(xbus(found.daemon, "bot", "runs", "report", "--json"))
    assert (shown["state"], shown["runner"], shown["slot_at"]) == ("done", "runner_1", None)
    assert xbus(found.daemon, "bot", "log", "lines") == "lines\n"
    told = [json.loads(line) for line in xbus(found.daemon, "bot", "list", "--json").splitlines()]
    assert {each["bot"]: each["last_run"]["state"] for each in told} == {
        name: run.state for name, run in by_name.items()
    }


def test_a_runner_does_what_its_person_allows(world: Callable[[str], World]) -> None:
    calls = {
        "report": "reports_of_test:nightly",
        "system": "os:system",
        "imported": "reports_of_test:os.system",
        "module": "reports_of_test:sys.exit",
        "longer": "reports_of_test_2:nightly",
    }
    commands = {"echo": ["echo", "1"], "touch": ["touch", "made"]}
    settings = {"shop": "north"}
    found = world(
        "".join(bot(name, call=call, attempts=1, settings=settings) for name, call in calls.items())
        + "".join(bot(name, command=command, attempts=1, emits=["reports"]) for name, command in commands.items())
    )
    refused = run_command("bot", "run", "--login", "runner_1", "-c", found.daemon.config)
    assert (refused.returncode, "--allow MODULE is missing" in refused.stderr) == (2, True)
    names = [*calls, *commands]
    found.runner("--allow", "reports_of_test", "--allow-command", "echo")
    for name in names:
        xbus(found.daemon, "bot", "fire", name, "--reason", "to see")
    wait_until(lambda: found.ended(len(names)), "all have ended", 60)
    assert {name: run.code for name, run in zip(names, found.runs(), strict=True)} == {
        **dict.fromkeys(names, "not_allowed"),
        "report": None,
        "echo": None,
    }
    assert not (found.folder / "made").exists()


def test_a_run_ends_though_a_child_keeps_its_pipes(world: Callable[[str], World]) -> None:
    found = world(
        bot("command", command=["sh", "-c", "echo 1; echo 2; sleep 600 & echo 3"], emits=["reports"], attempts=1)
        + bot("function", call="reports_of_test:leaves_a_child_behind", attempts=1)
    )
    found.runner()
    for name in ("command", "function"):
        xbus(found.daemon, "bot", "fire", name, "--reason", "to see")
    wait_until(lambda: found.ended(2), "both have ended", 60)
    assert [run.code for run in found.runs()] == [None, "run_crashed"]
    assert found.values("reports") == [1, 2, 3]


def test_a_runner_that_is_told_to_stop_takes_no_run_while_it_ends_another_one(world: Callable[[str], World]) -> None:
    """It may be at work for long, and calls of its other places still wait at the back."""
    found = world(
        bot("waits", call="reports_of_test:waits")
        + bot("report", call="reports_of_test:nightly", settings={"shop": "north"})
    )
    leaving = found.runner()
    xbus(found.daemon, "bot", "fire", "waits", "--reason", "to see")
    found.takes_a_run([leaving])
    leaving.signal(signal.SIGTERM)
    wait_until(lambda: "told to stop" in leaving.text, "it is told to stop", 30)
    other = found.runner()
    xbus(found.daemon, "bot", "fire", "report", "--reason", "to see")
    wait_until(lambda: found.runs()[1].state == "done", "the other runner does it", 60)
    assert found.runs()[1].attempts == 1
    assert found.runs()[0].state == "running"
    (found.folder / "may_go_on").touch()
    assert leaving.stop() == 0
    assert [(run.state, run.attempts) for run in found.runs()] == [("done", 1), ("done", 1)]
    assert other.stop() == 0


def test_a_run_has_the_listed_variables_only(world: Callable[[str], World]) -> None:
    printing = "import json, os; print(json.dumps(dict(os.environ)))"
    found = world(
        bot("function", call="reports_of_test:tells_environment", emits=["reports"])
        + bot("command", command=[sys.executable, "-c", printing], emits=["reports"])
    )
    found.runner("--allow", "reports_of_test", "--allow-command", sys.executable, "--env", "SHOP_TOKEN")
    for name in ("function", "command"):
        xbus(found.daemon, "bot", "fire", name, "--reason", "to see")
    wait_until(lambda: found.ended(2), "both have ended", 60)
    for given in found.values("reports"):
        assert given.keys() <= {*PASSED, "SHOP_TOKEN", *("XBUS_BOT", "XBUS_SLOT", "XBUS_ATTEMPT", "XBUS_SETTINGS")}
        assert (given["SHOP_TOKEN"], given["TZ"]) == ("s3cret", "Europe/Paris")
        assert PASSWORD not in given.values()


@pytest.mark.slow
def test_each_slot_once_while_runners_are_killed(world: Callable[[str], World]) -> None:
    fields: dict[str, Any] = {"call": "reports_of_test:often", "missed": "all", "attempts": 100, "instances": 3}
    settings = {"seconds": 0.3}
    found = world(bot("often", cron="* * * * * *", settings=settings, **fields))
    runners = [found.runner() for _ in range(3)]
    for _ in range(2):
        killed = found.takes_a_run(runners)
        killed.kill()
        runners = [runner for runner in runners if runner is not killed] + [found.runner()]
    # Without a cron no more slots come, and those that are left are done.
    add_bots(found.daemon.url, bot("often", settings=settings, **fields))
    wait_until(found.ended, "all have ended", 90)
    runs = found.runs()
    slots = [run.slot for run in runs]
    assert len(slots) == len(set(slots)) == int((max(slots) - min(slots)).total_seconds()) + 1
    assert {run.state for run in runs} == {"done"}
    keys = [key for _, key, _ in found.put()]
    assert sorted(str(key) for key in keys) == sorted(f"slot {slot:%Y-%m-%dT%H:%M:%SZ}" for slot in slots)
    for runner in runners:
        assert runner.stop() == 0


@pytest.mark.slow
def test_each_batch_once_while_runners_are_killed(world: Callable[[str], World]) -> None:
    found = world(
        bot(
            "sums",
            call="reports_of_test:sums",
            reads=["orders", "returns"],
            batch_items=7,
            instances=3,
            attempts=100,
            settings={"seconds": 0.3},
        )
    )
    runners = [found.runner() for _ in range(2)]
    sent = [("abcr"[number % 4], number) for number in range(120)]
    found.send(*sent)
    for _ in range(2):
        killed = found.takes_a_run(runners)
        killed.kill()
        runners = [runner for runner in runners if runner is not killed] + [found.runner()]
    wait_until(lambda: sum(items for *_, items in found.put()) >= 120 + 120, "all are in the output", 90)
    wait_until(found.ended, "all runs have ended", 30)
    values = [each["value"] for each in found.values("reports")]
    assert sorted(value for _, value in values) == [*range(120)]
    for key in "abcr":
        assert [value for each, value in values if each == key] == [value for each, value in sent if each == key]
    runs = found.runs()
    batches = [run.batch for run in runs]
    assert len(set(batches)) == len(batches)
    assert {run.state for run in runs} == {"done"}
    assert {key for name, key, _ in found.put() if name == "reports"} == set(batches)
    for runner in runners:
        assert runner.stop() == 0


def test_a_batch_that_fails_is_tried_anew_and_a_command_reads_lines(world: Callable[[str], World]) -> None:
    script_text = "import sys, json; print(sum(json.loads(line)[1] for line in sys.stdin))"
    found = world(
        bot("refuses", call="reports_of_test:refuses", reads=["orders"], attempts=1, emits=["reports", "refunds"])
        + bot("adds", command=["python3", "-c", script_text], reads=["orders"], batch_wait=1.0, emits=["reports"])
    )
    found.runner()
    found.send(("a", 1), ("a", 2), ("b", 3))
    wait_until(lambda: found.ended(2), "both have ended", 30)
    (failed,) = [run for run in found.runs() if run.state == "failed"]
    assert (failed.code, failed.batch is not None) == ("run_failed", True)
    assert found.values("reports") == [6]
    (found.folder / "may_go_on").touch()
    xbus(found.daemon, "bot", "fire", "refuses", "--run", str(failed.id), "--reason", "mended")
    wait_until(lambda: all(run.state == "done" for run in found.runs()), "it goes on", 30)
    refused = run_command("bot", "fire", "adds", "--reason", "no", "-c", found.daemon.config)
    assert refused.returncode != 0
    assert "bot_reads" in refused.stderr
    assert '"bot/adds"' in xbus(found.daemon, "reader", "list", "--json")
