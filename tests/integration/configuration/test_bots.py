"""Bots in the bus file: read, refused, applied, written, renamed and removed."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from xbus import model
from xbus.admin import bus_file
from xbus.broker.journal.configuration import Section, apply, make_plan, read_stored
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.slots import Missed

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 11, tzinfo=UTC)

BUS = """\
[[event_type]]
name = "reports"

[[service]]
name = "night_runners"
kind = "runner"

[[role]]
login = "runner_1"
service = "night_runners"
"""
BOT = """\
[[bot]]
name = "report"
call = "reports:nightly"
cron = "0 3 * * *"
timezone = "Europe/Paris"
missed = "all"
emits = ["reports"]
max_seconds = 60
settings = { "shop" = "north", "rows" = { "most" = 10, "kinds" = ["a", "b"] } }
"""


def problems(connection: sa.Connection, text: str, *, prune: bool = False) -> list[str]:
    """Apply a file; give what forbids it."""
    read = bus_file.read(text.encode())
    found = [f"{problem.line}: {problem.sentence}" for problem in read.problems]
    plan = make_plan(read_stored(connection), read.bus, prune=prune, unreadable=read.unreadable)
    found += [f"{(at := read.locate(problem)).line}: {at.sentence}" for problem in plan.problems]
    if not found:
        apply(connection, plan, NOW)
    return found


def test_a_bot_is_applied_and_written_as_it_was_read(connection: sa.Connection) -> None:
    assert problems(connection, BUS + BOT) == []
    stored = read_stored(connection).in_use
    bot = stored.bots["report"]
    assert (bot.call, bot.missed, bot.max_seconds) == ("reports:nightly", Missed.ALL, 60)
    assert bot.emits == {"reports"}
    assert bot.settings == {"shop": "north", "rows": {"most": 10, "kinds": ["a", "b"]}}
    assert bus_file.read(bus_file.write(stored).encode()).bus == stored
    assert not stored.emitters
    assert not stored.profiles
    assert make_plan(read_stored(connection), stored, prune=True).changes == ()


def test_the_catalog_has_runners_and_the_emitter_of_the_bot(connection: sa.Connection) -> None:
    assert problems(connection, BUS + BOT) == []
    catalog = read_catalog(connection)
    (runner,) = catalog.runners.values()
    (bot,) = catalog.bots.values()
    (emitter,) = catalog.emitters.values()
    assert (runner.login, catalog.roles) == ("runner_1", {})
    assert bot.service_id == runner.service_id
    assert emitter.login == "bot/report"
    assert emitter.event_types == {"reports"}


@pytest.mark.parametrize(
    ("bot", "sentence"),
    [
        ('cron = "every day"', "is no cron expression"),
        ('cron = "0 0 30 2 *"', "cron"),
        ('cron = "0 3 * * *"\ntimezone = "Mars/Olympus"', "is no time zone"),
        ('emits = ["nothing"]', 'there is no event_type "nothing"'),
        ('runners = "nobody"', 'there is no service "nobody"'),
        ('command = ["report"]', "either call or command"),
        ("settings = { at = 2026-11-20T10:00:00Z }", "settings must be"),
        ("max_seconds = 0", "max_seconds must be"),
        ('cron = "0 3 * * *"\nreads = ["reports"]', "either cron or reads"),
        ('reads = ["nothing"]', 'there is no event_type "nothing"'),
        ('reads = ["reports"]\nemits = ["reports"]', "would read without end"),
        ("batch_items = 7", "bots with reads only"),
        ('reads = ["reports"]\nbatch_items = 0', "batch_items must be"),
        ('reads = ["reports"]\nmissed = "all"', "bots with cron only"),
        ('missed = "twice"', "missed must be"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(connection: sa.Connection, bot: str, sentence: str) -> None:
    found = problems(connection, f'{BUS}[[bot]]\nname = "report"\ncall = "reports:nightly"\n{bot}\n')
    assert len(found) == 1
    assert sentence in found[0]
    assert read_stored(connection).in_use.bots == {}


CIRCLE = """\
[[event_type]]
name = "orders"

[[bot]]
name = "there"
call = "reports:there"
reads = ["orders"]
emits = ["reports"]
"""
BACK = '[[bot]]\nname = "back"\ncall = "reports:back"\nreads = ["reports"]\nemits = ["orders"]\n'
NODE_BACK = '[[event_type.node]]\nname = "back"\nemits = "orders"\n'


def test_bots_that_would_feed_each_other_are_refused(connection: sa.Connection) -> None:
    sentence = "event types lead back to themselves: "
    (found,) = problems(connection, BUS + CIRCLE + BACK)
    assert f'bot "back": {sentence}"reports" to "orders" to "reports"' in found
    by_a_node = BUS.replace('name = "reports"\n', f'name = "reports"\n{NODE_BACK}', 1)
    (found,) = problems(connection, by_a_node + CIRCLE)
    assert sentence in found
    assert read_stored(connection).in_use.bots == {}
    assert problems(connection, BUS + CIRCLE) == []
    (later,) = problems(connection, BUS + CIRCLE.partition("[[bot]]")[0] + BACK)
    assert sentence in later
    (later,) = problems(connection, by_a_node + CIRCLE.partition("[[bot]]")[0])
    assert sentence in later


@pytest.mark.parametrize("call", ["reports", "reports:", "re-ports:nightly", "reports:nightly()"])
def test_a_call_names_a_module_and_a_function(connection: sa.Connection, call: str) -> None:
    (found,) = problems(connection, f'{BUS}[[bot]]\nname = "report"\ncall = "{call}"\n')
    assert "module:function" in found


def test_runners_are_named_where_there_are_none_or_several(connection: sa.Connection) -> None:
    bot = '[[bot]]\nname = "report"\ncall = "reports:nightly"\n'
    assert "there is none" in problems(connection, bot)[0]
    other = '[[service]]\nname = "day_runners"\nkind = "runner"\n'
    assert "there are 2" in problems(connection, BUS + other + bot)[0]
    assert problems(connection, BUS + other + bot + 'runners = "day_runners"\n') == []
    node = '[[event_type]]\nname = "a"\n[[event_type.node]]\nname = "b"\nservice = "night_runners"\n'
    assert "runs bots, and gets no events" in problems(connection, BUS + node)[0]


def test_a_renamed_bot_keeps_its_emitter_and_a_removed_one_comes_back(connection: sa.Connection) -> None:
    assert problems(connection, BUS + BOT) == []
    emitter_id = connection.execute(sa.select(model.emitter.c.id)).scalar_one()
    renamed = BOT.replace('name = "report"', 'name = "nightly"\nrenamed_from = "report"')
    assert problems(connection, BUS + renamed) == []
    assert connection.execute(sa.select(model.emitter.c.id, model.emitter.c.login)).one() == (
        emitter_id,
        "bot/nightly",
    )
    assert problems(connection, BUS, prune=True) == []
    assert not read_catalog(connection).bots
    assert not read_catalog(connection).emitters
    plan = make_plan(read_stored(connection), bus_file.read((BUS + BOT.replace('"report"', '"nightly"')).encode()).bus)
    assert [(change.move, change.section) for change in plan.changes] == [("restore", Section.BOT)]
    apply(connection, plan, LATER)
    assert connection.execute(sa.select(model.bot_state.c.slots_until)).scalar_one() == LATER
    assert [emitter.id for emitter in read_catalog(connection).emitters.values()] == [emitter_id]


READING = """\
[[bot]]
name = "sums"
call = "reports:sums"
reads = ["reports"]
batch_items = 7
batch_wait = 0.5
instances = 2
"""


def test_a_bot_that_reads_has_a_reader_that_no_file_names(connection: sa.Connection) -> None:
    assert problems(connection, BUS + READING) == []
    stored = read_stored(connection).in_use
    bot = stored.bots["sums"]
    assert (set(bot.reads), bot.batch_items, bot.batch_wait) == ({"reports"}, 7, 0.5)
    assert not stored.readers
    assert bus_file.read(bus_file.write(stored).encode()).bus == stored
    assert make_plan(read_stored(connection), stored, prune=True).changes == ()
    (entry,) = read_readers(connection)
    assert (entry.name, entry.batch_items) == ("bot/sums", 7)
    assert len(read_ranges(connection)) == 2
    assert [each.reads for each in read_catalog(connection).bots.values()] == [["reports"]]
    taken = BUS + '[[reader]]\nname = "bot/sums"\nevent_types = ["reports"]\n'
    assert "take another name" in problems(connection, taken)[0]
    assert problems(connection, BUS + READING.replace('"sums"', '"adds"\nrenamed_from = "sums"', 1)) == []
    assert [each.name for each in read_readers(connection)] == ["bot/adds"]
    timed = '[[bot]]\nname = "adds"\ncall = "reports:sums"\n'
    assert problems(connection, BUS + timed) == []
    assert read_readers(connection) == []
    assert [each.reader for each in read_catalog(connection).bots.values()] == [None]
