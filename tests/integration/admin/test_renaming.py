"""``renamed_from`` in the bus file: an entry gets another name, and all that belongs to it goes along."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.admin.conftest import GOOD, Log, Xbus, version
from xbus import model
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.sessions import read_credentials
from xbus.rpc.curve import new_pair

RENAMED = """\
[[event_type]]
name = "departures"
renamed_from = "flights"

[[event_type.node]]
name = "enrich"
service = "names"
to = ["store"]

[[event_type.node]]
name = "store"
service = "departure_store"

[[service]]
name = "names"
renamed_from = "airline_names"
kind = "worker"

[[service]]
name = "departure_store"
renamed_from = "flight_store"
kind = "consumer"

[[role]]
login = "names_1"
renamed_from = "airline_names_1"
service = "names"

[[role]]
login = "departure_store_1"
renamed_from = "flight_store_1"
service = "departure_store"

[[emitter_profile]]
name = "airfield"
renamed_from = "airport"
event_types = ["departures"]

[[emitter]]
login = "airfield_1"
renamed_from = "airport_1"
profile = "airfield"
"""

KEY = new_pair().public

RENAMES = [
    'rename event_type "flights" to "departures"',
    'rename service "airline_names" to "names"',
    'rename service "flight_store" to "departure_store"',
    'rename role "airline_names_1" to "names_1"',
    'rename role "flight_store_1" to "departure_store_1"',
    'rename emitter_profile "airport" to "airfield"',
    'rename emitter "airport_1" to "airfield_1"',
]


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    path = tmp_path / "renamed.toml"
    path.write_text(RENAMED)
    return path


def rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """The ids of all entries, with what belongs to them."""
    statements = {
        "type": sa.select(model.event_type.c.id, model.event_type.c.removed_at),
        "service": sa.select(model.service.c.id, model.service.c.key, model.service.c.removed_at),
        "role": sa.select(
            model.role.c.id, model.role.c.service_id, model.role.c.password_hash, model.role.c.public_keys
        ),
        "emitter": sa.select(model.emitter.c.id, model.emitter.c.password_hash, model.emitter.c.profile_id),
        "graph": sa.select(model.graph.c.id),
        "cursor": sa.select(model.cursor),
        "rights": sa.select(model.profile_event_type),
    }
    with reading(url) as connection:
        return {name: sorted(map(tuple, connection.execute(each).all()), key=repr) for name, each in statements.items()}


def test_everything_is_renamed_and_stays_what_it_is(xbus: Xbus, bus: Path, renamed: Path, database_url: str) -> None:
    xbus("apply", bus)
    assert xbus("password", "role", "flight_store_1", "--stdin", stdin="secret\n").exit_code == 0
    assert xbus("keys", "allow", "role", "flight_store_1", KEY).exit_code == 0
    renamed.write_text(
        renamed.read_text().replace('login = "departure_store_1"\n', f'login = "departure_store_1"\nkeys = ["{KEY}"]\n')
    )
    before = rows(database_url)

    result = xbus("apply", renamed)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[: len(RENAMES)] == RENAMES
    assert "Give the program of role departure_store_1 its new login." in result.stdout
    assert rows(database_url) == before
    with reading(database_url) as connection:
        catalog = read_catalog(connection)
        assert read_credentials(connection, "role", "flight_store_1") is None
        assert read_credentials(connection, "role", "departure_store_1") is not None
    assert set(catalog.event_types) == {"departures"}
    assert {emitter.event_types for emitter in catalog.emitters.values()} == {frozenset({"departures"})}
    assert {role.shown_service for role in catalog.roles.values()} == {"names", "departure_store"}
    exported = xbus("export").stdout
    assert "renamed_from" not in exported
    assert exported.replace("departures", "flights").count("flights") == GOOD.count("flights")
    assert "Nothing to change" in xbus("apply", "-", "--prune", stdin=exported).stdout


def test_applied_again_it_changes_nothing(xbus: Xbus, bus: Path, renamed: Path, database_url: str) -> None:
    xbus("apply", bus)
    xbus("apply", renamed)
    before = version(database_url)

    result = xbus("apply", renamed, "--prune")

    assert (result.exit_code, "Nothing to change" in result.stdout) == (0, True)
    assert version(database_url) == before


def test_a_dry_run_shows_the_renamings_and_nothing_that_is_owed(xbus: Xbus, log: Log, database_url: str) -> None:
    """The renamed services are the same ones: nobody loses anything."""
    exported = xbus("export").stdout
    changed = exported.replace('"store"\nkind', '"shop"\nrenamed_from = "store"\nkind').replace(
        'service = "store"', 'service = "shop"'
    )
    changed = changed.replace('login = "store_1"', 'login = "shop_1"\nrenamed_from = "store_1"')
    changed = changed.replace('name = "flights"', 'name = "departures"\nrenamed_from = "flights"')
    changed = changed.replace('event_types = ["flights"]', 'event_types = ["departures"]')
    before = version(database_url)

    result = xbus("apply", "-", "--dry-run", "--prune", stdin=changed)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        'rename event_type "flights" to "departures"',
        'rename service "store" to "shop"',
        'rename role "store_1" to "shop_1"',
        "Nothing was changed: this was a dry run.",
    ]
    assert version(database_url) == before
    assert xbus("export").stdout == exported


def test_what_is_owed_goes_along(xbus: Xbus, log: Log) -> None:
    file = '[[role]]\nlogin = "shop_1"\nservice = "store"\nrenamed_from = "store_1"\n'
    assert xbus("apply", "-", stdin=file).exit_code == 0

    shown = xbus("envelope", "show", str(log.second)).stdout

    assert "shop_1" in shown
    assert "store_1" not in shown
    result = xbus("apply", "--prune", "--dry-run", "-")
    assert 'role "shop_1" has not got 1 envelope yet: position 2' in result.stdout


def test_an_edit_beside_a_renaming_asks_about_what_is_owed(xbus: Xbus, log: Log) -> None:
    file = (
        '[[event_type]]\nname = "departures"\nrenamed_from = "flights"\n'
        '[[event_type.node]]\nname = "count"\nservice = "counting"\n'
        '[[service]]\nname = "counting"\nkind = "consumer"\nrenamed_from = "counter"\n'
        '[[service]]\nname = "shop"\nkind = "consumer"\nrenamed_from = "store"\n'
    )

    result = xbus("apply", "--dry-run", "-", stdin=file)

    assert 'change event_type "departures": nodes' in result.stdout
    assert 'role "store_1" has not got 1 envelope yet: position 2' in result.stdout
    assert "counter_1" not in result.stdout
    done = xbus("apply", "--owed", "drop", "-", stdin=file)
    assert done.exit_code == 0, done.stderr


def test_a_new_entry_may_take_the_former_name(xbus: Xbus, bus: Path, database_url: str) -> None:
    xbus("apply", bus)
    file = (
        '[[service]]\nname = "old_store"\nkind = "consumer"\nrenamed_from = "flight_store"\n'
        '[[service]]\nname = "flight_store"\nkind = "worker"\n'
        '[[event_type]]\nname = "old_flights"\nrenamed_from = "flights"\n'
        '[[event_type.node]]\nname = "store"\nservice = "old_store"\n'
        '[[event_type]]\nname = "flights"\n'
    )

    result = xbus("apply", "-", stdin=file)

    assert result.exit_code == 0, result.stderr
    assert 'rename service "flight_store" to "old_store"' in result.stdout
    assert 'add service "flight_store"' in result.stdout
    with reading(database_url) as connection:
        keys = dict(tuple(row) for row in connection.execute(sa.select(model.service.c.name, model.service.c.key)))
    assert keys == {"airline_names": "airline_names", "old_store": "flight_store", "flight_store": "flight_store#2"}
    again = xbus("apply", "-", stdin=file)
    assert again.exit_code == 1
    assert (
        'both service "flight_store" and service "old_store" exist: remove renamed_from if it was renamed'
        in again.stderr
    )


def test_a_new_bus_takes_a_file_that_renamed_entries_of_another(xbus: Xbus, renamed: Path, database_url: str) -> None:
    assert xbus("apply", renamed, "--dry-run").exit_code == 0
    applied = xbus("apply", renamed)
    assert (applied.exit_code, "rename" in applied.stdout) == (0, False)
    before = version(database_url)
    assert (xbus("apply", renamed).exit_code, version(database_url)) == (0, before)


def role(login: str, former: str, more: str = "") -> str:
    return f'[[role]]\nlogin = "{login}"\nservice = "flight_store"\nrenamed_from = "{former}"\n{more}'


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            role("new_1", "nobody"),
            '<stdin>:4: role "new_1": there is neither role "nobody" nor role "new_1": remove renamed_from',
        ),
        (
            role("airline_names_1", "flight_store_1").replace('flight_store"', 'airline_names"'),
            '<stdin>:4: role "airline_names_1": both role "flight_store_1" and role "airline_names_1" exist: remove',
        ),
        (role("flight_store_1", "flight_store_1"), "has this name already: remove renamed_from"),
        (role("new_1", "flight_store_1", role("new_2", "flight_store_1")), 'role "flight_store_1" is renamed twice'),
        (role("new_1", " "), "renamed_from must be a text of 1 to 255 printable characters"),
        (role("new_1", "gone_1"), '("gone_1" was removed: name it again before you rename it)'),
        (role("gone_1", "flight_store_1"), 'role "gone_1" was removed, and keeps its name in case it comes back'),
    ],
)
def test_a_wrong_renaming_is_refused_with_its_line(
    xbus: Xbus, bus: Path, database_url: str, file: str, said: str
) -> None:
    xbus("apply", bus)
    xbus("apply", "-", stdin='[[role]]\nlogin = "gone_1"\nservice = "flight_store"\n')
    xbus("apply", bus, "--prune", "--yes")
    before = version(database_url)

    result = xbus("apply", "-", stdin=file)

    assert result.exit_code == 1
    assert said in result.stderr
    assert version(database_url) == before


def test_keys_of_an_emitter_and_hashes_stay(xbus: Xbus, bus: Path, renamed: Path, database_url: str) -> None:
    xbus("apply", bus)
    xbus("apply", renamed)

    with writing(database_url) as connection:
        (kind,) = read_catalog(connection).event_types.values()
    assert (kind.name, kind.hashed_name) == ("departures", "flights")
