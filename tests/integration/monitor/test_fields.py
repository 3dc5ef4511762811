"""Fields of actions that a program fills in wrongly: each is refused, and nothing breaks."""

import pytest

from tests.integration.admin.parked_bus import ParkedBus
from tests.integration.monitor.conftest import Monitor
from xbus.admin.signatures import BusAction
from xbus.monitor.actions import form_of
from xbus.monitor.features import ACTIONS
from xbus.rights import Right

WRONG: list[object] = [
    *("", "\0", "x" * 5000, "…", "1 0", "9999999999d", "-1", "zz"),
    *(-1, 0, 2**53, 2**70, 1.5, True, None),
    *([], ["x"], [2**70], ["\0"], [["x"]], ["x"] * 1001, {"a": "b"}),
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_no_value_breaks_an_action(monitor: Monitor, parked: ParkedBus, action: type[BusAction]) -> None:
    program = monitor.program("tester", *Right)
    for name in form_of(action).model_fields:
        for value in WRONG:
            given = {"name": "nobody", "reason": "x", "login": "nobody", "kind": "role", name: value}
            fields = {each: given[each] for each in form_of(action).model_fields if each in given}
            answer = program.post(f"/api/{action.path}", json=fields)
            assert answer.status_code < 500, (name, value, answer.text)
