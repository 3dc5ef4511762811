"""One look at the bus after the other."""

from dataclasses import replace
from datetime import timedelta

from tests.support.journal import NOW
from xbus.admin.commands.top import LOG, BusLook, Rates, overview
from xbus.admin.output import Form, Output
from xbus.broker.journal.operations.event_types import TypeCount, TypeCounts
from xbus.broker.journal.operations.roles import RoleStatus
from xbus.broker.journal.samples.sample import Delivered
from xbus.rpc.messages import HealthReport
from xbus.states import PresenceState

WELL: HealthReport = {"healthy": True, "name": "broker", "since": NOW.isoformat(), "problems": [], "pauses": []}
STORE = RoleStatus(
    *("store_1", "store", "consumer", PresenceState.PRESENT, NOW, NOW, NOW, [], 12, NOW - timedelta(seconds=75)),
    parked=3,
    parked_items=2,
    role_id=1,
)
MILL = RoleStatus("mill_1", "mill", "worker", PresenceState.ABSENT, None, None, None, [], None, None, 0, 0, role_id=2)
NOTES = TypeCount("notes", 100, 1_000, 40, NOW)
LOOK = BusLook(NOW, TypeCounts([NOTES], 50, 50), [STORE, MILL], {"front": WELL, "back": WELL}, {1: Delivered(7, 70)})


def lines(look: BusLook, rates: Rates) -> list[str]:
    return [" ".join(line.split()) for line in overview(look, rates, Output(Form.USUAL, 100))]


def test_rates_are_taken_over_the_last_seconds() -> None:
    rates = Rates(10)
    for second in range(0, 40, 2):
        rates.note(second, {"a": second * 3 if second < 20 else 60, "b": -second})
    assert (rates.rate("a"), rates.rate("b"), rates.rate("c")) == (0.0, None, None)
    rates.note(40, {"a": 110, "b": 0})
    assert rates.rate("a") == 5.0


def test_a_first_look_has_no_rates() -> None:
    rates = Rates()
    rates.note(0.0, LOOK.counts)
    assert lines(LOOK, rates) == [
        "2020-02-29 12:00:00Z position 50 - envelopes/s lag 12 parked 3",
        "The broker is healthy.",
        "",
        "TYPE EVENTS/S ITEMS/S LAST HOUR NEWEST",
        "notes - - 40 0 s",
        "",
        "ROLE SERVICE KIND STATE ITEMS/S ENVELOPES/S LAG LAG S PARKED",
        "store_1 store consumer present - - 12 75 3, 2 items",
        "mill_1 mill worker absent - - - - -",
    ]


def test_a_later_look_has_them() -> None:
    rates = Rates()
    rates.note(0.0, LOOK.counts)
    later = replace(
        LOOK, types=TypeCounts([replace(NOTES, events=120, items=1_001)], 60, 60), delivered={1: Delivered(9, 90)}
    )
    rates.note(4.0, later.counts)
    assert rates.rate(LOG) == 2.5
    assert lines(later, rates)[0].endswith("position 60 2.5 envelopes/s lag 12 parked 3")
    assert lines(later, rates)[4] == "notes 5.0 0.2 40 0 s"
    assert lines(later, rates)[7] == "store_1 store consumer present 5.0 0.5 12 75 3, 2 items"


def test_problems_come_first_and_a_broker_that_is_away_is_told() -> None:
    rates = Rates()
    rates.note(0.0, LOOK.counts)
    problem = {"code": "parked", "about": "store_1", "cause": "3 wait", "since": None, "next_step": ""}
    ill: HealthReport = {**WELL, "healthy": False, "problems": [problem]}  # type: ignore[list-item]
    told = lines(replace(LOOK, sides={"front": ill, "back": ill}), rates)
    assert told[1:4] == ["", "CODE ABOUT CAUSE", "parked store_1 3 wait"]
    assert lines(replace(LOOK, sides={"front": None, "back": WELL}), rates)[1] == "The front can't be reached."
