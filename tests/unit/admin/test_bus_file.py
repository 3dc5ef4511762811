"""The bus as a file: every error of its form has its line, and what is written is what was read."""

import math
from datetime import UTC, datetime, timedelta
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zmq.utils import z85

from xbus.admin import bus_file
from xbus.admin.bus_file import BusFile
from xbus.admin.bus_file.fields import MOST, MOST_INSTANCES, YEAR
from xbus.admin.bus_file.reader import locate
from xbus.broker.journal.configuration import (
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    Section,
    ServiceSpec,
)
from xbus.broker.journal.configuration.entries import Start
from xbus.broker.journal.configuration.names import LONGEST_NAME
from xbus.broker.journal.writes import LIMIT_NAMES, SendingLimits

FLIGHTS = """\
[[event_type]]
name = "flights"
immediate_reply = false

[[event_type.node]]            # a node that no node points to is a start node
name = "enrich"
service = "airline_names"
to = ["store", "delays"]
[[event_type.node]]
name = "store"
service = "flight_store"
[[event_type.node]]
name = "delays"
service = "delay_counter"

[[service]]
name = "airline_names"
kind = "worker"                # or "consumer"

[[role]]
login = "airline_names_1"
service = "airline_names"

[[emitter_profile]]
name = "airport"
event_types = ["flights", "airlines"]

[[emitter]]
login = "airport_1"
profile = "airport"
"""


def read(text: str) -> BusFile:
    return bus_file.read(dedent(text).encode())


def problems(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.sentence) for problem in read(text).problems]


def test_a_file_is_read() -> None:
    nodes = (
        NodeSpec("enrich", "airline_names", ("delays", "store")),
        NodeSpec("store", "flight_store"),
        NodeSpec("delays", "delay_counter"),
    )
    found = read(FLIGHTS)
    assert found.problems == ()
    assert found.bus == BusSpec(
        event_types={"flights": EventTypeSpec("flights", False, {node.name: node for node in nodes})},
        services={"airline_names": ServiceSpec("airline_names", "worker")},
        roles={"airline_names_1": RoleSpec("airline_names_1", "airline_names")},
        profiles={"airport": ProfileSpec("airport", frozenset({"flights", "airlines"}))},
        emitters={"airport_1": EmitterSpec("airport_1", "airport")},
    )


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ('"head"', "head"),
        ('"oldest"', "oldest"),
        ("17", 17),
        ('"2026-11-01T00:00:00Z"', datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T01:00:00+01:00", datetime(2026, 11, 1, tzinfo=UTC)),
    ],
)
def test_a_role_begins_where_the_file_says(written: str, start: Start) -> None:
    assert read(f'[[role]]\nlogin = "x"\nservice = "y"\nstart = {written}\n').bus.roles["x"].start == start


def test_an_empty_file_is_an_empty_bus() -> None:
    assert read("# nothing yet\n").bus == BusSpec()


def test_each_place_has_its_line() -> None:
    places = read(FLIGHTS).places
    assert places[Section.EVENT_TYPE, "flights"] == 1
    assert places[Section.EVENT_TYPE, "flights", "immediate_reply"] == 3
    assert places[Section.EVENT_TYPE, "flights", "node", "store"] == 9
    assert places[Section.EVENT_TYPE, "flights", "node", "enrich", "to"] == 8
    assert places[Section.EMITTER, "airport_1", "profile"] == 30


def test_a_problem_of_the_bus_is_told_with_the_line_of_its_place() -> None:
    place = ("event_type", "flights", "node", "enrich", "service")
    told = read(FLIGHTS).locate(ConfigurationProblem(place, 'there is no service "airline_names"'))
    assert told.line == 7
    assert told.sentence == 'event_type "flights", node "enrich": there is no service "airline_names"'


def test_a_problem_of_what_the_file_leaves_out_is_told_with_the_line_around_it() -> None:
    assert (
        read('\n[[service]]\nname = "x"\nkind = "worker"')
        .locate(ConfigurationProblem(("service", "x", "size"), "..."))
        .line
        == 2
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('[[service]]\nname = "x\n', (2, "this is not TOML (Illegal character '\\n')"), id="not TOML"),
        pytest.param('[[service]]\nname = ["x",\n\n', (2, "this is not TOML (Invalid value)"), id="ends too early"),
        pytest.param("a = " + "9" * 5000, (1, "it has a number of too many digits"), id="long number"),
        pytest.param("a = " + "[" * 50_000, (1, "its values are nested too deep"), id="nested deep"),
        pytest.param("a = 1\n\na = 2\n", (3, "this is not TOML (Cannot overwrite a value)"), id="a key twice"),
        pytest.param(
            '\n[[rolle]]\nlogin = "x"\n',
            (
                2,
                'there is no section "rolle"; there are event_type, service, reader, role, '
                "emitter_profile, emitter, bot, subscription",
            ),
            id="unknown section",
        ),
        pytest.param(
            '\n[service]\nname = "x"\n', (2, "service must be a list of tables: write [[service]]"), id="table"
        ),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "worker"\nknd = 1\n',
            (
                4,
                'unknown key "knd"; there are name, kind, failures, attempts, first_delay, longest_delay, jitter, '
                "renamed_from",
            ),
            id="unknown key",
        ),
        pytest.param('\n\n[[service]]\nname = "x"\n', (3, "kind is missing"), id="missing key"),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "robot"\n',
            (
                3,
                'kind must be "worker" or "consumer" or "runner" or "gateway";'
                " a reader is a table of its own, [[reader]]",
            ),
            id="unknown kind",
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\nimmediate_reply = "no"\n',
            (3, "immediate_reply must be true or false"),
            id="wrong type",
        ),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "consumer"\nfailures = "none"\n',
            (4, 'failures must be "shared" or "own"'),
            id="unknown failures",
        ),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "consumer"\nattempts = 0\n',
            (4, "attempts must be a whole number from 1 to 1000000000"),
            id="no attempt",
        ),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "consumer"\nfirst_delay = nan\n',
            (4, "first_delay must be a number of seconds from 0 to 31622400, which is a year"),
            id="no number",
        ),
        pytest.param(
            '[[service]]\nname = "x"\nkind = "consumer"\njitter = true\n',
            (4, "jitter must be a number from 0 to 1"),
            id="a truth for a number",
        ),
        pytest.param(
            '[[role]]\nlogin = "x"\nservice = "y"\nordered = 1\n', (4, "ordered must be true or false"), id="ordered"
        ),
        *(
            pytest.param(
                f'[[role]]\nlogin = "x"\nservice = "y"\ninstances = {number}\n',
                (4, "instances must be a whole number from 1 to 1,000"),
                id=f"{number} instances",
            )
            for number in ("0", "-1", "1.5", "true", '"4"', "1001")
        ),
        pytest.param(
            '[[role]]\nlogin = "x"\nservice = "y"\nstandby = 1\n', (4, "standby must be true or false"), id="standby"
        ),
        *(
            pytest.param(
                f'[[role]]\nlogin = "x"\nservice = "y"\nabsent_minutes = {minutes}\n',
                (4, 'absent_minutes must be a number of minutes from 0 to 527040, which is a year, or "never"'),
                id=f"{minutes} minutes",
            )
            for minutes in ("-1", "true", "inf", "nan", '"always"', "527041")
        ),
        *(
            pytest.param(
                f'[[role]]\nlogin = "x"\nservice = "y"\nstart = {start}\n',
                (
                    4,
                    'start must be "head", "oldest", a position from 1 on, or a moment with its time zone, such as '
                    '"2026-11-01T00:00:00Z"',
                ),
                id=f"start at {start}",
            )
            for start in ("0", "true", '"first"', '"2026-11-01T00:00:00"', "2026-11-01", "[1]")
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\nbad_items = "drop"\n',
            (3, 'bad_items must be "envelope" or "isolate"'),
            id="unknown bad_items",
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\nsecret = ["iban", "card..number"]\n',
            (3, 'secret must be a list of paths of keys, such as ["card.number", "iban"]'),
            id="a path without a key",
        ),
        *(
            pytest.param(
                f'[[event_type]]\nname = "x"\nkeep = {span}\n',
                (
                    3,
                    "keep must be a number of seconds, minutes, hours, days or weeks such as "
                    '"30m", "12h", "90d" or "4w", at most 100 years, or "forever"',
                ),
                id=f"kept for {span}",
            )
            for span in ("90", '"90"', '"0d"', '"-1d"', '"1.5d"', '"90 d"', '"36501d"', '"never"', '"1mon"')
        ),
        *(
            pytest.param(
                f'[[role]]\nlogin = "x"\nservice = "y"\nmax_lag = {lag}\n',
                (
                    4,
                    "max_lag must be a number of envelopes from 1 to 1000000000, or a number of seconds, minutes, "
                    'hours, days or weeks such as "30m", "12h", "90d" or "4w", at most 100 years',
                ),
                id=f"may lag {lag}",
            )
            for lag in ("0", "true", "2.5", '"2"', '"forever"')
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\nkeep_bytes = 0\n',
            (3, "keep_bytes must be a whole number of bytes from 1 on"),
            id="no bytes",
        ),
        pytest.param(
            '[[emitter_profile]]\nname = "x"\nevent_types = [\n  "a",\n  1,\n]\n',
            (3, 'event_types must be a list of names, such as ["store", "delays"]'),
            id="wrong type inside a list",
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\nnode = "y"\n',
            (3, "node must be a list of tables: write [[event_type.node]]"),
            id="nodes that are none",
        ),
        pytest.param(
            '[[role]]\nlogin = "x"\nservice = "y"\n[[role]]\nlogin = "x"\nservice = "z"\n',
            (4, 'role "x" is named twice, first in line 1'),
            id="twice",
        ),
        pytest.param(
            '[[event_type]]\nname = "x"\n[[event_type.node]]\nname = "n"\nservice = "s"\n'
            '[[event_type.node]]\nname = "n"\nservice = "s"\n',
            (6, 'node "n" is named twice, first in line 3'),
            id="a node twice",
        ),
    ],
)
def test_a_wrong_form_is_told_with_its_line(text: str, expected: tuple[int, str]) -> None:
    assert problems(text) == [expected]


@pytest.mark.parametrize("name", ['""', '" x"', '"a\\nb"', '"a\\u0000"', f'"{"x" * (LONGEST_NAME + 1)}"', "7"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    ((line, sentence),) = problems(f'[[service]]\nkind = "worker"\nname = {name}\n')
    assert line == 3
    assert sentence.startswith("name must be a text of 1 to 255")


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    assert [problem.line for problem in bus_file.read(b'[[service]]\nname = "\xff"\n').problems] == [2]


def test_a_file_of_another_editor_is_read() -> None:
    assert bus_file.read(b"\xef\xbb\xbf" + FLIGHTS.replace("\n", "\r\n").encode()).bus == read(FLIGHTS).bus


def test_every_problem_is_told_in_the_order_of_lines() -> None:
    text = """\
        [[service]]
        kind = "robot"
        [[role]]
        login = 5
        [[rolle]]
        [[event_type]]
        name = "x"
        [[event_type.node]]
        nam = "n"
        """
    assert [line for line, _ in problems(text)] == [1, 2, 3, 4, 5, 8, 9]


def test_what_can_not_be_read_is_left_out_and_named() -> None:
    found = read(
        """\
        [[service]]
        name = "broken"
        kind = "robot"
        [[event_type]]
        name = "flights"
        [[event_type.node]]
        name = "n"
        to = "m"
        """
    )
    assert found.bus == BusSpec()
    assert found.unreadable == {(Section.SERVICE, "broken"), (Section.EVENT_TYPE, "flights")}


def test_lines_are_found_in_every_way_of_writing() -> None:
    text = '''\
# a comment with a = 1

a.b = """
c = 1
"""
list = [
  1,
  2,
]
inline = {x = 1, y = 2}
[table]
key = 'x'
[[array]]
[[array.inner]]
key = 1
[[array.inner]]
[[array]]
  [[array.inner]]
  key = 2
'''
    lines = locate(text)
    assert lines["a", "b"] == 3
    assert lines["list",] == 6
    assert lines["inline",] == 10
    assert lines["table", "key"] == 12
    assert lines["array", 0, "inner", 0, "key"] == 15
    assert lines["array", 0, "inner", 1] == 16
    assert lines["array", 1] == 17
    assert lines["array", 1, "inner", 0, "key"] == 19
    assert ("c",) not in lines


PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
NAMES = st.text(PRINTABLE, min_size=1, max_size=12).map(str.strip).filter(bool)
FIELDS = NAMES.map(lambda name: ".".join(filter(None, name.split(".")))).filter(bool)
"""Names of fields, also of fields within others."""


def services(name: str) -> st.SearchStrategy[ServiceSpec]:
    seconds = st.none() | st.floats(0, YEAR)
    return st.builds(
        ServiceSpec,
        st.just(name),
        st.sampled_from(("worker", "consumer")),
        st.sampled_from(("shared", "own")),
        attempts=st.none() | st.integers(1, MOST),
        first_delay=seconds,
        longest_delay=seconds,
        jitter=st.none() | st.floats(0, 1),
    )


KEYS = st.lists(st.binary(min_size=32, max_size=32).map(lambda bare: z85.encode(bare).decode()), unique=True).map(
    lambda keys: tuple(sorted(keys))
)


def roles(name: str) -> st.SearchStrategy[RoleSpec]:
    minutes = st.none() | st.floats(0, 366 * 24 * 60) | st.just(math.inf)
    return st.builds(
        RoleSpec,
        st.just(name),
        NAMES,
        st.booleans(),
        absent_minutes=minutes,
        parked_minutes=minutes,
        instances=st.integers(1, MOST_INSTANCES),
        standby=st.booleans(),
        keys=KEYS,
        max_lag=st.none() | st.integers(1, MOST) | st.integers(1, 3_153_600_000).map(lambda s: timedelta(seconds=s)),
        when_behind=st.sampled_from(["alarm", "detach", "skip"]),
    )


LIMITS = st.builds(SendingLimits, **{name: st.none() | st.integers(1, MOST) for name in LIMIT_NAMES})


@st.composite
def buses(draw: st.DrawFn) -> BusSpec:
    """Entries of any names; a file needs no more sense than that to be written and read."""
    names = st.lists(NAMES, max_size=4, unique=True)
    event_types = {}
    for name in draw(names):
        nodes = {node: NodeSpec(node, draw(NAMES), tuple(sorted(draw(names)))) for node in draw(names)}
        event_types[name] = EventTypeSpec(
            name,
            draw(st.booleans()),
            nodes,
            "isolate" if draw(st.booleans()) else "envelope",
            draw(st.integers(1, MOST)),
            tuple(sorted(draw(st.frozensets(FIELDS, max_size=3)))),
            draw(st.none() | st.just(math.inf) | st.integers(1, 3_153_600_000).map(float)),
            draw(st.none() | st.integers(1, 2**63 - 1)),
            draw(st.none() | st.integers(1, MOST)),
            draw(st.none() | st.integers(1, 3_153_600_000).map(float)),
        )
    return BusSpec(
        event_types,
        {name: draw(services(name)) for name in draw(names)},
        {name: draw(roles(name)) for name in draw(names)},
        {name: ProfileSpec(name, frozenset(draw(names)), limits=draw(LIMITS)) for name in draw(names)},
        {name: EmitterSpec(name, draw(NAMES), draw(KEYS), limits=draw(LIMITS)) for name in draw(names)},
    )


@settings(max_examples=30)
@given(buses())
def test_what_is_written_is_read_again(bus: BusSpec) -> None:
    found = bus_file.read(bus_file.write(bus).encode())
    assert found.problems == ()
    assert found.bus == bus


def test_readers_are_read_and_written_again() -> None:
    text = """\
[[reader]]
name = "billing"
event_types = ["orders", "refunds"]
ranges = 16
lease = 5.0
keeps = false

[[role]]
login = "billing_1"
service = "billing"
"""
    found = read(text)
    assert found.problems == ()
    assert bus_file.write(found.bus) == text
    assert problems('[[reader]]\nname = "a"\nlease = 0\n') == [
        (1, "event_types is missing"),
        (3, f"lease must be a number of seconds from 1 to {YEAR}, which is a year"),
    ]
