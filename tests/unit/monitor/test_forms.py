"""Forms of entries: what stands in them is what the bus file says, and a new field of it appears by itself."""

import math
from dataclasses import fields, replace
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin import bus_file
from xbus.admin.bus_file.fields import FORMER, SECTIONS, FieldShape
from xbus.broker.journal.configuration import (
    BotSpec,
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    SubscriptionSpec,
)
from xbus.broker.journal.configuration.entries import Entry
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.writes import LIMIT_NAMES, SendingLimits
from xbus.monitor.features.forms import Draft
from xbus.slots import Missed

KEYS = ("A" * 40, "B" * 40)

LIMITS = SendingLimits(**dict.fromkeys(LIMIT_NAMES, 7))

NODES = {
    "enrich": NodeSpec("enrich", "names", ("last", "store")),
    "store": NodeSpec("store", "store"),
    "last": NodeSpec("last", "delays"),
}

ENTRIES: dict[Section, Entry] = {
    Section.EVENT_TYPE: EventTypeSpec(
        *("flights", True, NODES, "isolate", 5, ("card number", "iban")),
        *(3600, 10, 2, 7200, "zstd"),
    ),
    Section.SERVICE: ServiceSpec("store", "consumer", "own", 3, 0.5, 60, 0.25),
    Section.READER: ReaderSpec("billing", frozenset({"flights"}), 3, 5.0, 10, 20, 0.5, False, 5, "skip"),
    Section.ROLE: RoleSpec("store_1", "store", True, None, math.inf, 10, 4, True, KEYS, 5, "skip"),
    Section.EMITTER_PROFILE: ProfileSpec("shop", frozenset({"flights"}), None, LIMITS, "shop_*", "shops", 86400.0),
    Section.EMITTER: EmitterSpec("shop_1", "shop", KEYS, limits=LIMITS),
    Section.BOT: BotSpec(
        "report",
        call="reports:nightly",
        command=("report", "--all"),
        cron="0 3 * * *",
        timezone="Europe/Paris",
        missed=Missed.ALL,
        reads=frozenset({"flights"}),
        batch_items=100,
        batch_bytes=5000,
        batch_wait=0.5,
        emits=frozenset({"flights"}),
        instances=2,
        max_seconds=60,
        attempts=5,
        settings={"shop": "north", "rows": {"most": 10, "kinds": ["a", "b"]}},
        runners="night_runners",
        description="The report of the night.",
    ),
    Section.SUBSCRIPTION: SubscriptionSpec(
        "shop",
        frozenset({"flights"}),
        "https://shop.example/hook",
        "cloudevents",
        None,
        False,
        10,
        100,
        4,
        False,
        5000,
        "skip",
        RetrySettings(3, 2.0, 60.0, 0.5),
    ),
}
"""An entry of each kind, in which no field has its default."""


def name_of(entry: Entry) -> str:
    return str(getattr(entry, fields(entry)[0].name))


@pytest.mark.parametrize("section", Section)
def test_an_entry_is_the_same_after_its_form(section: Section) -> None:
    entry = ENTRIES[section]
    draft = Draft.of(section, name_of(entry), entry)
    found = bus_file.read(draft.text.encode())
    assert found.problems == ()
    assert found.bus.section(section) == {name_of(entry): entry}


@pytest.mark.parametrize("section", Section)
def test_no_field_of_the_bus_file_lacks(section: Section) -> None:
    entry = ENTRIES[section]
    shown = {field.key: field for field in Draft.of(section, name_of(entry), entry).fields(BusSpec())}
    wanted = {
        key for key, about in SECTIONS[section].items() if about.shape is not FieldShape.TABLES and key not in FORMER
    }
    assert shown.keys() == wanted
    # Where a field begins with its default nobody would notice that its value is lost.
    assert all(field.values for key, field in shown.items() if key not in ("start", "keeps", "verify", "secret"))


def test_each_optional_field_says_what_it_means() -> None:
    for section, keys in SECTIONS.items():
        for key, about in keys.items():
            if not about.required and key not in FORMER and about.shape is not FieldShape.TABLES:
                assert about.means.endswith("."), f"{section}: {key}"


def test_a_new_name_is_a_renaming() -> None:
    entry = ENTRIES[Section.SERVICE]
    draft = Draft.of(Section.SERVICE, "store", entry)
    renamed = replace(draft, given={**draft.given, "name": ["shop"]})
    assert bus_file.read(renamed.text.encode()).bus.services["shop"].renamed_from == "store"
    new = replace(renamed, stored="")
    assert bus_file.read(new.text.encode()).bus.services["shop"].renamed_from is None


def test_a_problem_is_sorted_to_its_field() -> None:
    draft = Draft.of(Section.EVENT_TYPE, "flights", ENTRIES[Section.EVENT_TYPE])
    wrong = {**draft.given, "max_isolated": ["many"], "node.1.name": [""]}
    found = replace(draft, given=wrong)
    problems = found.problems(bus_file.read(found.text.encode()).problems)
    assert list(problems) == ["max_isolated"]
    right = replace(draft, given={**wrong, "max_isolated": ["5"]})
    assert list(right.problems(bus_file.read(right.text.encode()).problems)) == ["node.1.name"]


def test_a_row_that_goes_is_nobodys_parent() -> None:
    draft = Draft.of(Section.EVENT_TYPE, "flights", ENTRIES[Section.EVENT_TYPE]).without_row("0").with_row()
    assert [row.number for row in draft.rows(BusSpec())] == ["1", "2", "3"]
    assert all(not row.before for row in draft.rows(BusSpec()))


TEXTS = st.lists(st.text(max_size=12), max_size=3)

FORMS = st.dictionaries(
    st.sampled_from(["name", "node.0.name", "node.0.service", "node.0.from", "row", "max_isolated", "secret"]), TEXTS
)


@given(FORMS)
def test_any_form_makes_a_file(given_: dict[str, list[str]]) -> None:
    draft = Draft(Section.EVENT_TYPE, "flights", given_)
    found = bus_file.read(draft.text.encode("utf-8", "replace"))
    assert not any("TOML" in problem.sentence for problem in found.problems)
    draft.problems(found.problems)
    list(draft.rows(BusSpec()))


def test_the_time_of_a_form_grows_with_its_ways_only() -> None:
    def seconds(rows: int) -> float:
        form = {"name": ["t"], "row": [str(row) for row in range(rows)]}
        for row in range(rows):
            form[f"node.{row}.name"] = [f"n{row}"]
            form[f"node.{row}.from"] = [str(before) for before in range(row)]
        began = perf_counter()
        assert Draft(Section.EVENT_TYPE, "", form).text
        return perf_counter() - began

    seconds(8)
    # Four times the rows have sixteen times the ways.
    assert seconds(64) < 16 * 8 * max(seconds(16), 0.001)
