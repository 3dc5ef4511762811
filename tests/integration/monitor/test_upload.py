"""Uploading files: seen first, then sent through the front as an emitter sends."""

import gzip
import html
import json
import re
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.conftest import StartDaemon
from tests.integration.monitor.conftest import CHEAP, Monitor
from tests.support.bus import PASSWORD, add_demo
from xbus import model
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.database.connection import ConnectionPool, reading, writing
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.clock import SystemClock
from xbus.config import load
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build
from xbus.rights import Right

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


TYPED = {"type": "test_event"}

GERMAN = "Nummer;Straße\n1;Größe\n"
"""As spreadsheets of Germany write it, in cp1252."""


@pytest.mark.parametrize(
    ("content", "chosen", "told"),
    [
        (GERMAN.encode("cp1252"), {"encoding": "cp1252"}, ["semicolons; the field Delimiter says otherwise", "CP1252"]),
        (GERMAN.encode("utf-16"), {}, ["semicolons", "Its encoding is UTF-16."]),
        (GERMAN.replace(";", ":").encode(), {"delimiter": ":"}, ["Its encoding is UTF-8."]),
        (GERMAN.replace(";", "\t").encode(), {"delimiter": "tab"}, ["Its encoding is UTF-8."]),
    ],
    ids=["german", "mark", "colon", "tab"],
)
def test_the_form_of_a_file_is_found_or_chosen(
    uploader: TestClient, content: bytes, chosen: dict[str, str], told: list[str]
) -> None:
    page = uploader.post("/upload/preview", files=file(content), data={**TYPED, **chosen})

    assert page.status_code == 200, page.text
    assert "1 item, of type test_event" in page.text
    assert items_of(page.text) == [{"Nummer": "1", "Straße": "Größe"}]
    assert [sentence for sentence in told if sentence not in page.text] == []


def test_a_file_without_names_becomes_lists(uploader: TestClient) -> None:
    page = uploader.post("/upload/preview", files=file(b"1;ada\n2;lin\n"), data={**TYPED, "header": "absent"})

    assert items_of(page.text) == [["1", "ada"], ["2", "lin"]]


def test_a_refusal_names_the_field_of_the_form(uploader: TestClient) -> None:
    def refused(content: bytes, name: str = "b.csv", **chosen: str) -> str:
        page = uploader.post("/upload/preview", files=file(content, name), data={**TYPED, **chosen})
        assert "--" not in re.sub("<!--.*?-->", "", page.text)
        return page.text

    assert "or name its encoding in the field Encoding" in refused(GERMAN.encode("cp1252"))
    assert "or name its encoding in the field Encoding" in refused("a;b\n1;ü\n".encode("cp1252"))
    assert "utf-16-le in the field Encoding" in refused(GERMAN.encode("utf-16-le"))
    assert "unknown_encoding" in refused(CSV, encoding="klingon")
    assert "one character in the field Delimiter" in refused(CSV, delimiter="::")
    assert "choose no descriptor" in refused(CSV, descriptor="clients <file>", header="absent")
    assert "convert it, or choose a descriptor" in refused(b"%PDF", "a.pdf")


def items_of(page: str) -> list[object]:
    return [json.loads(html.unescape(shown)) for shown in re.findall("<pre>(.*?)</pre>", page, re.DOTALL)]


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
    assert "Its encoding is UTF-8." in sent.text
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
