"""``xbus import-legacy`` and ``xbus descriptor`` over an old database that 0.2.0 could have made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg2.extensions import parse_dsn

from tests.integration.admin.conftest import Xbus, version
from tests.support import legacy, postgres
from tests.support.legacy import OldDatabase
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.sessions import read_credentials
from xbus.passwords import is_legacy_hash


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """What goes into which database is tested elsewhere."""
    return sqlite_url


@pytest.fixture
def old(postgres_server: postgres.Server) -> Iterator[OldDatabase]:
    with legacy.old_database(postgres_server) as database:
        yield database


DEMO = """\
add event_type "test_event"
add service "consumer_service"
add service "worker_service"
add role "consumer_role"
add role "worker_role"
add emitter_profile "test_profile"
add emitter "test_emitter"
add person "manager"
set password of role "consumer_role"
set password of role "worker_role"
set password of emitter "test_emitter"
set password of person "manager"
give person "manager" the rights: manager
"""


def test_a_dry_run_only_tells(xbus: Xbus, old: OldDatabase, database_url: str) -> None:
    old.add_demo()
    before = version(database_url)
    result = xbus("import-legacy", "--dry-run", old.address)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{DEMO}Nothing was changed: this was a dry run.\n"
    assert xbus("export").stdout == ""
    assert version(database_url) == before


def test_the_demo_rows_go_over_and_a_second_time_there_is_nothing_to_do(
    xbus: Xbus, old: OldDatabase, database_url: str
) -> None:
    old.add_demo()
    result = xbus("import-legacy", old.address)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{DEMO}Imported: the configuration is at version {version(database_url)}.\n"
    assert parse_dsn(old.address)["password"] not in result.output
    with reading(database_url) as connection:
        credentials = read_credentials(connection, "emitter", "test_emitter")
    assert credentials is not None
    assert is_legacy_hash(credentials[1])
    exported = xbus("export").stdout
    assert 'to = ["consumer_service_1"]' in exported or 'to = ["consumer_service_2"]' in exported

    again = xbus("import-legacy", old.address)
    assert again.exit_code == 0
    assert again.stdout.endswith("Nothing to change: all that can be taken over is there.\n")
    assert xbus("export").stdout == exported


def test_a_changed_password_stays(xbus: Xbus, old: OldDatabase, database_url: str) -> None:
    old.add_demo()
    xbus("import-legacy", old.address)
    xbus("password", "emitter", "test_emitter", "--stdin", stdin="another\n")
    before = version(database_url)
    result = xbus("import-legacy", old.address)
    assert result.exit_code == 0
    assert "note: these have logged in here already" in result.stdout
    assert 'and keep it: emitter "test_emitter"' in result.stdout
    assert version(database_url) == before


def test_a_login_without_a_password_is_told(xbus: Xbus, old: OldDatabase) -> None:
    old.add_demo()
    old.execute("UPDATE role SET password = NULL WHERE login = 'worker_role'")
    result = xbus("import-legacy", old.address)
    assert "role worker_role can't log in yet: xbus password role worker_role" in result.stdout


def test_what_can_not_be_taken_is_told_and_the_rest_is_taken(xbus: Xbus, old: OldDatabase, tmp_path: Path) -> None:
    old.add_service("names")
    old.add_service("other")
    old.add_service("store", is_consumer=True)
    kinds: dict[str, tuple[dict[str, list[str]], list[str]]] = {
        "good": ({"names": ["store"], "store": []}, ["names"]),
        "twice": ({"a:names": ["b"], "b:names": ["store"], "store": []}, ["a"]),
        "loose": ({"names": []}, ["names"]),
        "leading": ({"a:store": ["b"], "b:store": []}, ["a"]),
        "cycle": ({"names": ["other"], "other": ["names", "store"], "store": []}, ["names"]),
    }
    old.add_profile("airport", [old.add_event_type(name, nodes, start) for name, (nodes, start) in kinds.items()])

    result = xbus("import-legacy", old.address)

    assert result.exit_code == 1
    assert "Imported: the configuration is at version" in result.stdout
    for name, why in {
        "twice": 'worker service "names" is twice on a path',
        "loose": 'node "names" is of the worker service "names" but leads to no node',
        "leading": 'node "store_1" is of the consumer service "store" but leads to "store_2"',
        "cycle": 'nodes lead back to themselves: "',
    }.items():
        assert f'NOT TAKEN: event_type "{name}" is left out ({why}' in result.stderr
        assert f'note: emitter_profile "airport" goes without event_type "{name}"' in result.stdout
    assert result.stderr.endswith("xbus: not all could be taken over: correct the problems above, then import again\n")
    assert 'event_types = ["good"]' in xbus("export").stdout

    anew = tmp_path / "anew.toml"
    anew.write_text("".join(f'[[event_type]]\nname = "{name}"\n' for name in kinds if name != "good"))
    assert xbus("apply", anew).exit_code == 0
    again = xbus("import-legacy", old.address)
    assert (again.exit_code, again.stderr) == (0, "")
    assert 'change emitter_profile "airport": event_types' in again.stdout


def test_marks_that_the_edges_contradict_mean_what_they_did(xbus: Xbus, old: OldDatabase) -> None:
    old.add_service("names")
    old.add_service("store", is_consumer=True)
    old.add_event_type("flights", {"names": ["store"], "store": [], "lost:store": []}, start=["names", "store"])
    result = xbus("import-legacy", old.address)
    assert result.exit_code == 0
    assert 'note: event_type "flights" goes without node "store_2", which got nothing' in result.stdout
    assert 'the start node "store_1_start" of the same service' in result.stdout
    exported = xbus("export").stdout
    assert 'name = "store_1_start"\nservice = "store"\n' in exported
    assert "store_2" not in exported


def test_an_event_type_with_an_immediate_reply_keeps_it(xbus: Xbus, old: OldDatabase) -> None:
    old.add_service("store", is_consumer=True)
    old.add_event_type("orders", {"store": []}, start=["store"], immediate_reply=True)
    assert xbus("import-legacy", old.address).exit_code == 0
    assert "immediate_reply = true" in xbus("export").stdout


def test_descriptions_and_events_that_stay_behind_are_counted(xbus: Xbus, old: OldDatabase) -> None:
    service_id = old.add("service", name="store", is_consumer=True, description="keeps")
    role_id = old.add("role", login="store_1", service_id=service_id)
    type_id = old.add("event_type", name="flights", description="")
    node_id = old.add("event_node", service_id=service_id, type_id=type_id, is_start=True)
    old.add("emitter_profile", name="airport", display_name="Airport")
    envelope_id = old.add("envelope", state="received", posted_date="2016-01-01")
    for state in ("wait", "exec", "done", "part"):
        event_id = old.add(
            "event", envelope_id=envelope_id, type_id=type_id, execution_state=state, tracking_state="unprocessed"
        )
    old.add("event_consumer_inactive_rel", event_id=event_id, role_id=role_id, node_id=node_id, was_unavailable=True)
    result = xbus("import-legacy", "--dry-run", old.address)
    assert "no place for it here: 2 descriptions" in result.stdout
    assert "note: the old broker still has 3 events to deliver, which stay there" in result.stdout
    assert result.exit_code == 0


def test_a_name_can_not_write_to_the_terminal(xbus: Xbus, old: OldDatabase) -> None:
    old.add("service", name="sto\x1b[2Jre", is_consumer=True)
    result = xbus("import-legacy", old.address)
    assert result.exit_code == 1
    assert "NOT TAKEN: service 'sto\\x1b[2Jre' is left out" in result.stderr
    assert "\x1b" not in result.output


def test_a_database_out_of_reach_may_be_reached_later(xbus: Xbus) -> None:
    result = xbus("import-legacy", "postgresql://xbus:S3CRET@127.0.0.1:1/xbus")
    assert result.exit_code == 3
    assert "the old database can't be reached" in result.stderr
    assert "S3CRET" not in result.output


def test_an_address_of_several_words_needs_no_quotes(xbus: Xbus, old: OldDatabase) -> None:
    old.add_demo()
    words = [f"{key}={value}" for key, value in parse_dsn(old.address).items()]
    assert xbus("import-legacy", *words, "--dry-run").exit_code == 0
    result = xbus("import-legacy", old.address, "S3CRET", *words)
    assert result.exit_code != 0
    assert "S3CRET" not in result.output
    assert parse_dsn(old.address)["password"] not in result.output


def test_our_own_database_is_no_old_one(xbus: Xbus, postgres_url: str) -> None:
    result = xbus("import-legacy", postgres_url)
    assert result.exit_code == 1
    assert "this is not a database of xbus.broker 0.2.0" in result.stderr


# -- what was imported -------------------------------------------------------------------------------------------------


def test_descriptors_are_listed_and_shown_as_they_are(xbus: Xbus, old: OldDatabase) -> None:
    content = "<descriptor>é\r\n</descriptor>".encode("latin-1")
    old.add("input_descriptor", name="planes", descriptor=content, descriptor_mimetype="text/xml")
    old.add("input_descriptor", name="pilots", descriptor=b"")
    assert xbus("descriptor", "list").stdout == "No descriptors.\n"
    xbus("import-legacy", old.address)
    listed = xbus("descriptor", "list").stdout.splitlines()
    assert [line.split() for line in listed] == [
        ["NAME", "MIMETYPE", "BYTES"],
        ["pilots", "-", "0"],
        ["planes", "text/xml", str(len(content))],
    ]
    assert xbus("descriptor", "show", "planes").stdout_bytes == content
    assert xbus("descriptor", "show", "pilots").stdout_bytes == b""


def test_a_descriptor_that_is_not_there_is_told(xbus: Xbus) -> None:
    result = xbus("descriptor", "show", "planes")
    assert result.exit_code == 1
    assert 'there is no descriptor "planes"' in result.stderr
