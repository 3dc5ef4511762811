"""The ``xbus`` command as its users meet it: a bus from a file, data through it, and what became of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.daemon import Daemon, write_config
from tests.support.processes import Process, run, script
from tests.support.waiting import wait_until

BUS = """\
[[event_type]]
name = "clients"

[[event_type.node]]
name = "upper"
service = "upper"
to = ["store"]

[[event_type.node]]
name = "store"
service = "store"

[[service]]
name = "upper"
kind = "worker"

[[service]]
name = "store"
kind = "consumer"

[[role]]
login = "upper_1"
service = "upper"

[[role]]
login = "store_1"
service = "store"

[[emitter_profile]]
name = "shop"
event_types = ["clients"]

[[emitter]]
login = "shop_1"
profile = "shop"
"""

RECIPIENTS = """\
from xbus.recipient import Consumer, Worker

class Upper(Worker):
    def on_item(self, event, item):
        return {**item.value, "name": item.value["name"].upper()}

class Store(Consumer):
    def on_event_start(self, event):
        event.envelope.state["names"] = []

    def on_item(self, event, item):
        event.envelope.state["names"].append(item.value["name"])

    def commit(self, envelope):
        with open("stored.txt", "a") as file:
            file.writelines(f"{name}\\n" for name in envelope.state["names"])
"""


class Shop:
    """A folder with a bus that runs, and the commands that are given in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.config = write_config(folder / "config.ini", url)
        self.daemon: Daemon

    def xbus(self, *arguments: str, stdin: str = "", exit_code: int = 0) -> str:
        """What the command writes to standard output; to standard error where it is refused."""
        environment = {"XBUS_CONFIG": str(self.config), "XBUS_PASSWORD": "secret"}
        done = run(script("xbus"), *arguments, cwd=self.folder, stdin=stdin, env=environment)
        assert done.returncode == exit_code, done.stderr
        return done.stderr if exit_code else done.stdout

    def emit(self, content: str, exit_code: int = 0) -> str:
        (self.folder / "clients.csv").write_text(content)
        options = ("--type", "clients", "--login", "shop_1", "--url", self.daemon.front)
        return self.xbus("emit", "clients.csv", *options, exit_code=exit_code)

    def start_recipient(self, name: str, login: str) -> Process:
        command = (
            script("xbus"),
            "recipient",
            "run",
            f"recipients:{name}",
            "--login",
            login,
            "--back",
            self.daemon.back,
        )
        return Process(*command, output=self.folder / f"{login}.log", cwd=self.folder, env={"XBUS_PASSWORD": "secret"})

    @property
    def stored(self) -> list[str]:
        path = self.folder / "stored.txt"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def make_shop(start_daemon: StartDaemon, tmp_path: Path) -> Callable[[str], Shop]:
    """Opens a shop over a database that is empty but for its schema."""

    def make(url: str) -> Shop:
        (tmp_path / "bus.toml").write_text(BUS)
        (tmp_path / "recipients.py").write_text(RECIPIENTS)
        shop = Shop(tmp_path, url)
        shop.xbus("apply", "bus.toml")
        for kind, login in (("emitter", "shop_1"), ("role", "upper_1"), ("role", "store_1")):
            shop.xbus("password", kind, login, "--stdin", stdin="secret\n")
        shop.daemon = start_daemon(url)
        return shop

    return make


def test_a_file_goes_through_the_bus(make_shop: Callable[[str], Shop], database_url: str) -> None:
    shop = make_shop(database_url)
    assert shop.emit("id,name\n1,jane\n2,joe\n").startswith("2 items sent: envelope ")
    assert "1 owed" in shop.xbus("envelope", "list")

    recipients = [shop.start_recipient("Upper", "upper_1"), shop.start_recipient("Store", "store_1")]
    try:
        wait_until(lambda: shop.stored == ["JANE", "JOE"], "both clients are stored")
        wait_until(lambda: "1 done" in shop.xbus("envelope", "list"), "the envelope is shown as done")
        assert [process.stop() for process in recipients] == [0, 0]
    finally:
        for process in recipients:
            process.kill()


def test_what_is_wrong_is_refused(make_shop: Callable[[str], Shop], sqlite_url: str) -> None:
    shop = make_shop(sqlite_url)

    assert "clients.csv:3: 1 fields, but the first line names 2" in shop.emit("id,name\n1,jane\n2\n", exit_code=1)

    def states() -> list[str]:
        return [json.loads(line)["state"] for line in shop.xbus("envelope", "list", "--json").splitlines()]

    # Who gives up does not wait for ever to be told that the bus has heard of it.
    wait_until(lambda: states() == ["cancelled"], "it is cancelled")

    shop.xbus("password", "emitter", "shop_1", "--stdin", stdin="another\n")
    assert "login" in shop.emit("id,name\n1,jane\n", exit_code=1).splitlines()[-1]

    shop.xbus("password", "role", "store_1", "--stdin", stdin="another\n")
    recipient = shop.start_recipient("Store", "store_1")
    assert recipient.wait() == 1
    assert "recipient store_1: " in recipient.text
