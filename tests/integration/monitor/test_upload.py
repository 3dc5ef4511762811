"""Uploading files: seen first, then sent through the front as an emitter sends."""

import gzip
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.conftest import StartDaemon
from tests.integration.monitor.conftest import CHEAP, Monitor
from tests.support.bus import PASSWORD, add_demo
from xbus import model
from xbus.broker.journal.audit.reading import AuditFilters, list_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.pool import ConnectionPool
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.broker.journal.people import Right
from xbus.clock import SystemClock
from xbus.config import load
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build

CSV = b"number;name\n1;ada <b>\n2;lin\n"

DESCRIPTOR = b"""<descriptor>
  <header><name>clients</name><eventtype>test_event</eventtype>
    <format name="csv"><delimiter>;</delimiter><startline>2</startline></format></header>
  <fields>
    <field name="number" mandatory="true"><source>1</source><type>int</type></field>
    <field name="name" mandatory="true"><source>2</source><type>string</type></field>
  </fields>
</descriptor>"""

SENDER = {"emitter": "test_emitter", "password": PASSWORD}


@pytest.fixture
def uploader(monitor: Monitor) -> TestClient:
    add_demo(monitor.url)
    with writing(monitor.url) as connection:
        row = {"name": "clients <file>", "mimetype": "text/xml", "content": DESCRIPTOR}
        connection.execute(sa.insert(model.input_descriptor).values(row))
    monitor.add("uli", Right.UPLOADER)
    return monitor.enter("uli")


@pytest.fixture
def with_broker(monitor: Monitor, uploader: TestClient, start_daemon: StartDaemon) -> Iterator[TestClient]:
    """The browser of an uploader, with a broker that runs."""
    daemon = start_daemon(monitor.url)
    journal = ConnectionPool(monitor.url)
    app = build(BusAccess(load(daemon.config), journal, SystemClock(), CHEAP), is_encrypted=False)
    beside = Monitor(monitor.url, monitor.bus, lambda: TestClient(app, "http://monitor"))
    yield beside.enter("uli")
    journal.close()


def file(content: bytes = CSV, name: str = "b.csv") -> dict[str, tuple[str, bytes]]:
    return {"file": (name, content)}


def test_the_first_items_are_shown(uploader: TestClient) -> None:
    page = uploader.post("/upload/preview", files=file(), data={"descriptor": "clients <file>"})
    assert page.status_code == 200
    assert "ada &lt;b&gt;" in page.text
    assert "2 items, of type test_event" in page.text
    plain = uploader.post("/upload/preview", files=file(), data={"type": "test_event"})
    assert "semicolons" in plain.text


def test_bad_lines_are_named(uploader: TestClient) -> None:
    bad = b"number;name\nx;<script>alert(1)</script>\n2;lin\n"
    page = uploader.post("/upload/preview", files=file(bad, "../../b\u202e.csv"), data={"descriptor": "clients <file>"})
    assert "b.csv:2: field number" in page.text
    assert "<script>alert" not in page.text
    assert "/tmp" not in page.text


@pytest.mark.parametrize(
    ("content", "name", "data", "code"),
    [
        (b"%PDF", "a.pdf", {}, "unknown_format"),
        (b"x", "a.csv.gz", {}, "unreadable_file"),
        (CSV, "a.csv", {"descriptor": "nobody"}, "descriptor_unknown"),
        (b'{"a":', "a.jsonl", {}, ""),
    ],
)
def test_what_can_not_be_read_is_refused(
    uploader: TestClient, content: bytes, name: str, data: dict[str, str], code: str
) -> None:
    page = uploader.post("/upload/preview", files=file(content, name), data=data)
    assert page.status_code < 500
    assert code in page.text


def test_only_uploaders_upload(viewer: TestClient, operator: TestClient) -> None:
    for browser in (viewer, operator):
        assert browser.get("/upload").status_code == 403
        assert browser.post("/upload/preview", files=file()).status_code == 403
        assert browser.post("/upload", files=file(), data=SENDER).status_code == 403


def test_a_file_is_sent_as_its_emitter(monitor: Monitor, with_broker: TestClient) -> None:
    form = with_broker.get("/upload").text
    assert "clients &lt;file&gt;" in form
    chosen = {"descriptor": "clients <file>", **SENDER, "key": "today"}
    seen = with_broker.post("/upload/preview", files=file(), data=chosen).text
    digest = seen.partition('name="digest" value="')[2].partition('"')[0]
    other = with_broker.post("/upload", files=file(CSV + b"3;tom\n"), data={**chosen, "digest": digest})
    assert "another file" in other.text
    sent = with_broker.post("/upload", files=file(), data={**chosen, "digest": digest})
    assert sent.status_code == 200, sent.text
    assert "2 items of b.csv sent" in sent.text
    again = with_broker.post("/upload", files=file(gzip.compress(CSV), "b.csv.gz"), data=chosen)
    assert again.status_code == 200, again.text
    with reading(monitor.url) as connection:
        found = list_envelopes(connection, EnvelopeFilters(), None, 10)
        act = list_acts(connection, AuditFilters(action="uploaded"), 5)[0].act
    assert [(each.emitter, each.items, each.key) for each in found] == [("test_emitter", 2, "today")]
    assert (act.who, act.object) == ("uli", 'emitter "test_emitter"')
    assert str(found[0].id) in act.after


def test_a_wrong_password_or_a_bad_line_sends_nothing(monitor: Monitor, with_broker: TestClient) -> None:
    wrong = {**SENDER, "password": "guess"}
    refused = with_broker.post("/upload", files=file(), data={"type": "test_event", **wrong})
    assert refused.status_code == 403
    assert "guess" not in refused.text
    bad = file(b"number;name\nx;ada\n2;lin\n")
    chosen = {"descriptor": "clients <file>", **SENDER}
    stopped = with_broker.post("/upload", files=bad, data=chosen)
    assert "b.csv:2" in stopped.text
    nowhere = with_broker.post("/upload", files=file(), data=SENDER)
    assert "no event type" in nowhere.text
    with reading(monitor.url) as connection:
        assert not [each for each in list_envelopes(connection, EnvelopeFilters(), None, 10) if each.position]
    left = with_broker.post("/upload", files=bad, data={**chosen, "skip_bad": "true"})
    assert left.status_code == 200
    assert "1 bad line left out" in left.text
