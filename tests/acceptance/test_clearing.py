"""Data clearing with the example in a process of its own: as xbus.monitor 0.2.1 asks, and by the command."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher
from click.testing import CliRunner
from fastapi.testclient import TestClient

from tests.support.bus import PASSWORD, Nodes, add_bus
from tests.support.daemon import Daemon, write_config
from tests.support.documentation import CHECKOUT
from tests.support.filled import new_sqlite
from tests.support.old_clients import close, connect
from tests.support.processes import Process, module
from tests.support.waiting import DEADLINE_SECONDS, eventually, wait_until
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import ConnectionPool, reading, writing
from xbus.broker.journal.people import add_person
from xbus.clock import SystemClock
from xbus.config import load
from xbus.emitter import AsyncEmitter, Emitter
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build
from xbus.passwords import Passwords
from xbus.rights import Right

TYPES: dict[str, Nodes] = {"client": {"clients": []}, "data_clearing": {"clients": []}}
ADA = {"number": 1, "name": "Ada", "email": "ada@example.org"}


class Shop:
    """A broker, and the example as its consumer.

    Args:
        folder: for their files.
    """

    def __init__(self, folder: Path) -> None:
        url = new_sqlite(folder / "xbus.db")
        add_bus(url, TYPES, immediate=("data_clearing",))
        self.daemon = Daemon(folder / "daemon", url).start()
        self.clearing_url = f"sqlite:///{folder / 'clearing.db'}"
        command = [*module("examples.clearing"), self.clearing_url, self.daemon.back]
        self._consumer = Process(*command, output=folder / "consumer.log", cwd=CHECKOUT)

    def close(self) -> None:
        self._consumer.kill()
        self.daemon.kill()

    def put_aside(self, client: dict[str, Any]) -> int:
        """Send a client that the example does not understand; the id of its item."""
        with Emitter(self.daemon.front, "emitter_1", PASSWORD) as emitter:
            emitter.put("client", [client])
        query = f"SELECT id FROM item WHERE state = 'new' AND dest_id = {client['number']}"
        wait_until(lambda: self.rows(query), "the item is put aside")
        ((item_id,),) = self.rows(query)
        return int(item_id)

    def rows(self, query: str, url: str = "") -> list[Any]:
        """What someone who knows its address sees in the clearing database."""
        engine = sa.create_engine(url or self.clearing_url, connect_args={"timeout": DEADLINE_SECONDS})
        with engine.connect() as connection:
            found = [tuple(row) for row in connection.execute(sa.text(query))]
        engine.dispose()
        return found

    def clearing(self, *arguments: object, exit_code: int = 0, beside_the_broker: bool = False) -> Any:
        """What ``xbus clearing`` prints; to standard error where it is not done."""
        where = ["-c", str(self.daemon.config)] if beside_the_broker else ["--url", self.daemon.front]
        command = ["clearing", *map(str, arguments), *where, "--login", "emitter_1"]
        done = CliRunner().invoke(main, command, env={"XBUS_PASSWORD": PASSWORD}, prog_name="xbus")
        assert done.exit_code == exit_code, done.output
        return done.stderr if exit_code else json.loads(done.stdout)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("clearing"))
    try:
        wait_until(lambda: "recipient registered" in shop.daemon.log, "the example registers")
        yield shop
    finally:
        shop.close()


async def ask_as_monitor(shop: Shop, request: dict[str, Any]) -> Any:
    """The calls of xbus.monitor 0.2.1 for one request: ``_send_item_request_`` in ``views/api/cl_item.py``."""
    client = await connect(shop.daemon.front)
    token = await client.call.login("emitter_1", PASSWORD)
    envelope_id = await client.call.start_envelope(token)
    event_id = await client.call.start_event(token, envelope_id, "data_clearing", 0)
    await client.call.send_item(token, envelope_id, event_id, msgpack.packb(request, use_bin_type=True))
    answer = await client.call.end_event(token, envelope_id, event_id)
    await client.call.end_envelope(token, envelope_id)
    await client.call.logout(token)
    await close(client)
    return answer


async def test_a_monitor_finds_shows_and_clears(shop: Shop) -> None:
    client = await connect(shop.daemon.front)
    token = await client.call.login("emitter_1", PASSWORD)
    ((metadata, features),) = await client.call.get_consumers(token)
    await close(client)
    assert (metadata["name"], features["clearing"]) == ("Clients", (True, shop.clearing_url))

    item_id = shop.put_aside({"number": 10, "name": "Grace"})
    assert shop.rows("SELECT display_name FROM item_type", features["clearing"][1]) == [("Client",)]
    details = (await ask_as_monitor(shop, {"action": "get_item_details", "item_id": item_id}))[1][0]
    assert (details["state"], details["source_data"]) == ("new", {"number": 10, "name": "Grace"})

    values = {"number": 10, "name": "Grace", "email": "grace@example.org"}
    ok, (cleared,) = await ask_as_monitor(shop, {"action": "clear_item", "item_id": item_id, "values": values})
    assert (ok, cleared["state"], cleared["out_data"]) == (True, "cleared", values)
    await eventually(
        lambda: shop.rows("SELECT name, email FROM client WHERE number = 10") == [("Grace", "grace@example.org")],
        "the client is committed",
    )
    assert shop.rows(f"SELECT state FROM item WHERE id = {item_id}") == [("cleared",)]

    for action in ({"action": "get_item_details", "item_id": 999}, {"action": "forget"}):
        assert await ask_as_monitor(shop, action) == (False, None)


def test_the_command_shows_and_clears(shop: Shop, tmp_path: Path) -> None:
    item_id = shop.put_aside({"number": 20, "name": "Edsger"})
    (details,) = shop.clearing("show", item_id)
    assert (details["id"], details["state"], details["current_data"]) == (item_id, "new", {})

    assert "an e-mail address with an @" in shop.clearing("clear", item_id, "email=nowhere", exit_code=1)
    values = tmp_path / "values.json"
    values.write_text('{"email": "edsger@example.org"}')
    (cleared,) = shop.clearing("clear", item_id, "name=E. W. D.", "--values", values)
    assert cleared["out_data"] == {"number": 20, "name": "E. W. D.", "email": "edsger@example.org"}
    assert "was cleared before" in shop.clearing("clear", item_id, "email=a@b", exit_code=1)
    assert "there is no item 999" in shop.clearing("show", 999, exit_code=1)
    assert 'there is no event type "mending"' in shop.clearing("show", item_id, "--type", "mending", exit_code=1)


def test_the_command_hides_secret_fields(shop: Shop) -> None:
    item_id = shop.put_aside({"number": 50, "name": "Barbara"})
    with writing(shop.daemon.url) as connection:
        connection.execute(sa.update(model.event_type).where(model.event_type.c.name == "client").values(secret="name"))
    try:
        (details,) = shop.clearing("show", item_id, beside_the_broker=True)
        assert details["source_data"]["name"] == "***"
        listed = shop.clearing("list", "-o", "json", "--before", item_id + 1, "--limit", 1, beside_the_broker=True)
        assert (listed["item_id"], listed["value"]["name"]) == (item_id, "***")
    finally:
        with writing(shop.daemon.url) as connection:
            connection.execute(sa.update(model.event_type).values(secret=""))


async def test_what_is_cancelled_behind_the_reply_is_rolled_back(shop: Shop) -> None:
    item_id = shop.put_aside({"number": 30, "name": "Alan"})
    request = {"action": "clear_item", "item_id": item_id, "values": {"email": "alan@example.org"}}
    async with AsyncEmitter(shop.daemon.front, "emitter_1", PASSWORD) as emitter:
        with pytest.raises(KeyError):
            async with emitter.envelope() as envelope:
                async with envelope.event("data_clearing") as event:
                    await event.send(request)
                reply: Any = await event.reply()
                assert reply[0]["state"] == "cleared"
                raise KeyError
        # The next envelope comes when the one before is forgotten.
        reply = await emitter.ask("data_clearing", {"action": "get_item_details", "item_id": item_id})
        assert reply[0]["state"] == "new"
    assert shop.rows("SELECT * FROM client WHERE number = 30") == []


async def test_clients_come_while_a_request_is_held_open(shop: Shop) -> None:
    """They wait for their turn, so that a roll-back of the request takes nothing of them away."""
    item_id = shop.put_aside({"number": 40, "name": "Barbara"})
    async with AsyncEmitter(shop.daemon.front, "emitter_1", PASSWORD) as emitter:
        with pytest.raises(KeyError):
            async with emitter.envelope() as envelope:
                async with envelope.event("data_clearing") as event:
                    await event.send({"action": "clear_item", "item_id": item_id, "values": {"email": "b@example.org"}})
                await event.reply()
                await emitter.put("client", [ADA])
                raise KeyError
    await eventually(lambda: shop.rows("SELECT name FROM client WHERE number = 1") == [("Ada",)], "Ada is committed")
    assert shop.rows(f"SELECT state FROM item WHERE id = {item_id}") == [("new",)]


@pytest.fixture
def browser(shop: Shop, tmp_path: Path) -> Iterator[TestClient]:
    """Of ada, who may clear, at a monitor beside the broker of the shop."""
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o600)
    asking = {"clearing_login": "emitter_1", "clearing_password_file": secret}
    config = load(
        write_config(
            tmp_path / "config.ini", shop.daemon.url, {"zmq": {"frontsocket": shop.daemon.front}, "monitor": asking}
        )
    )
    cheap = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    with closing(ConnectionPool(shop.daemon.url)) as journal:
        app = build(BusAccess(config, journal, SystemClock(), cheap), is_encrypted=False)
        with journal.writing() as connection:
            add_person(connection, "ada", [Right.CLEARER], cheap.hash_password(PASSWORD), SystemClock().now())
        browser = TestClient(app, "http://monitor", raise_server_exceptions=False)
        browser.post("/log-in", data={"name": "ada", "password": PASSWORD})
        yield browser


def test_a_person_finds_shows_and_clears_in_a_browser(shop: Shop, browser: TestClient) -> None:
    item_id = shop.put_aside({"number": 90, "name": "<b>Alan</b>"})
    here = f"/clearing/data_clearing/{item_id}"
    page = browser.get("/clearing").text
    listed = browser.get("/api/clearing", params={"limit": 1}).json()
    assert (listed["found"][0]["item_id"], listed["next"], listed["errors"]) == (item_id, {"before": item_id}, [])
    assert browser.get(f"/api{here}").json()["details"][0]["source_data"]["name"] == "<b>Alan</b>"
    assert here in page
    assert "&lt;b&gt;Alan" in page
    assert "&lt;b&gt;Alan" in browser.get(here).text
    form = browser.get("/do/clearing/clear", params={"type": "data_clearing", "item_id": item_id, "back": here})
    assert f"xbus clearing clear {item_id} --type data_clearing" in form.text
    wanted = {"type": "data_clearing", "item_id": str(item_id)}
    refused = browser.post("/do/clearing/clear", data={**wanted, "values": '{"email": "nowhere"}'})
    assert (refused.status_code, "an e-mail address with an @" in refused.text) == (409, True)
    for wrong in ("{}", "[1]", "x"):
        assert browser.post("/do/clearing/clear", data={**wanted, "values": wrong}).status_code == 422
    done = browser.post("/do/clearing/clear", data={**wanted, "values": '{"email": "alan@example.org"}'})
    assert done.status_code == 200, done.text
    assert shop.rows(f"SELECT state FROM item WHERE id = {item_id}") == [("cleared",)]
    assert here not in browser.get("/clearing").text
    assert here in browser.get("/clearing", params={"state": "cleared"}).text
    with reading(shop.daemon.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(), 100) if row.act.action == "cleared"]
    assert {(act.who, act.object, act.after) for act in acts} == {("ada", f"item {item_id} of data_clearing", "email")}
    assert browser.get("/clearing/data_clearing/999999").status_code == 409
    assert browser.get("/clearing/nothing/1").status_code in (404, 409)
