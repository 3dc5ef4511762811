"""xbus.file_emitter 0.1.2 with descriptors of pyjon.descriptors: files of each format arrive as items."""

from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.support.bus import add_bus

CSV = """<?xml version="1.0" encoding="utf-8"?>
<descriptor>
  <header>
    <name>clients</name>
    <eventtype>client</eventtype>
    <format name="csv"><delimiter>;</delimiter><startline>2</startline></format>
  </header>
  <fields>
    <field name="number" mandatory="true"><type>int</type><source>1</source></field>
    <field name="name" mandatory="true"><type>string</type><source>2</source><length min="1" max="20"/></field>
    <field name="since" mandatory="false"><type format="%d/%m/%Y">date</type><source>3</source></field>
    <field name="owes" mandatory="false">
      <type thousanddelimiter=" " decimaldelimiter=",">decimal</type><source>4</source>
    </field>
  </fields>
</descriptor>
"""

FIXED = """<descriptor>
  <header>
    <name>orders</name>
    <eventtype>order</eventtype>
    <format name="fixedlength"><startline>1</startline></format>
  </header>
  <fields>
    <field name="number" mandatory="true"><type>int</type><source>1</source><length>6</length></field>
    <field name="amount" mandatory="true">
      <type decimalplaces="2">decimal</type><source>2</source><length>8</length>
    </field>
  </fields>
</descriptor>
"""

XML = """<descriptor>
  <header>
    <name>parties</name>
    <eventtype>party</eventtype>
    <format name="xml"/>
    <datanode>parties/party</datanode>
  </header>
  <fields>
    <field name="id" mandatory="true"><type>int</type><source>id</source></field>
    <field name="city" mandatory="true"><type>string</type><source>address/city</source></field>
  </fields>
</descriptor>
"""


def test_a_file_of_each_format_arrives(
    old_client: Old, sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    descriptors = [tmp_path / "clients", tmp_path / "orders", tmp_path / "parties"]
    for path, text in zip(descriptors, (CSV, FIXED, XML), strict=True):
        path.write_text(text)
    clients, orders, parties = tmp_path / "clients.csv", tmp_path / "orders.txt", tmp_path / "parties.xml"
    # The old program reads its files in the encoding of its locale, so nothing but ASCII.
    clients.write_text('number;name;since;owes\n1;"Dupont; Marie";31/12/2015;"1 234,50"\n2;Smith;;\n')
    orders.write_text("00000100001250\n00000200000099\n")
    parties.write_text(
        "<parties><party><id>7</id><address><city>Zürich</city></address></party>"
        "<party><id>8</id><address><city>Lyon</city></address></party></parties>"
    )
    add_bus(sqlite_url, {"client": {"c": []}, "order": {"c": []}, "party": {"c": []}})
    daemon = start_daemon(sqlite_url)
    consumer = old_client.consumer(daemon, "c_1")
    named = [f"{clients}=clients", f"{orders}=orders", f"{parties}=parties"]
    (told,) = old_client.sends_files(daemon, *named, descriptors=descriptors).ended()
    consumer.wait_for_envelopes([told["envelope"]])

    assert [args[2] for args in consumer.got("start_event")] == ["client", "order", "party"]
    assert [msgpack.unpackb(item.encode("latin-1")) for item in consumer.items()] == [
        {"number": 1, "name": "Dupont; Marie", "since": "2015-12-31", "owes": 1234.5},
        {"number": 2, "name": "Smith", "since": None, "owes": None},
        {"number": 1, "amount": 12.5},
        {"number": 2, "amount": 0.99},
        {"id": 7, "city": "Zürich"},
        {"id": 8, "city": "Lyon"},
    ]


def test_a_file_that_does_not_fit_leaves_nothing(
    old_client: Old, sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """The old emitter gives up in mid-envelope, which is then never sealed; a type that it may not send ends it too."""
    add_bus(sqlite_url, {"client": {"c": []}, "forbidden": {"c": []}})
    daemon = start_daemon(sqlite_url)
    consumer = old_client.consumer(daemon, "c_1")
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("number;name;since;owes\n1;Dupont;;\n")
    bad.write_text("number;name;since;owes\n1;Dupont;;\n2;too few\n")
    descriptor, forbidden = tmp_path / "clients", tmp_path / "forbidden"
    descriptor.write_text(CSV)
    forbidden.write_text(CSV.replace("<eventtype>client", "<eventtype>forbidden"))

    broken = old_client.sends_files(daemon, f"{bad}=clients", descriptors=[descriptor])
    refused = old_client.sends_files(daemon, f"{good}=clients", descriptors=[forbidden])
    assert broken.process.wait() == refused.process.wait() == 1
    assert "TooFewFieldsError" in broken.process.text
    assert "Could not create a message" in refused.process.text
    (told,) = old_client.sends_files(daemon, f"{good}=", descriptors=[descriptor]).ended()
    consumer.wait_for_envelopes([told["envelope"]])
    assert {args[0] for args in consumer.got("start_event")} == {told["envelope"]}
