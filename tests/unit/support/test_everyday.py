"""The everyday suite: what it leaves out, and how the rest is cut into parts."""

from pathlib import Path

import pytest

from tests.support.everyday import EVERYDAY, LONG, is_left_out, mark_slow, part_of

TESTS = Path(__file__).parents[2]


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """The tests of this run."""
    return request.session.items


def function_of(request: pytest.FixtureRequest, path: str, **params: object) -> pytest.Function:
    """A test that lies in a module, with the values of its parameters."""
    node = request.node
    assert isinstance(node, pytest.Function)
    made = pytest.Function.from_parent(node.parent, name="test_it", callobj=lambda: None)
    made.path = TESTS / path
    made.callspec = type("CallSpec", (), {"params": params})()
    return made


@pytest.mark.parametrize(
    ("path", "values", "is_slow"),
    [
        ("fault/test_bulk.py", {}, True),
        ("simulation/test_machine.py", {}, True),
        ("acceptance/test_wheel.py", {}, True),
        ("acceptance/test_order.py", {"database_url": "sqlite"}, False),
        ("acceptance/test_order.py", {"database_url": "postgresql"}, True),
        ("integration/admin/test_edit.py", {"database_url": "postgresql"}, True),
        ("contract/test_log.py", {"engine": "postgresql"}, False),
        ("contract/test_log.py", {"engine": "memory"}, False),
        ("contract/test_log.py", {"engine": "sqlite"}, True),
        ("contract/test_log.py", {"shared_url": "sqlite"}, False),
        ("unit/test_states.py", {"database_url": "postgresql"}, False),
    ],
)
def test_a_rule_says_what_is_slow(
    request: pytest.FixtureRequest, path: str, values: dict[str, object], is_slow: bool
) -> None:
    item = function_of(request, path, **values)
    mark_slow([item])
    assert (item.get_closest_marker("slow") is not None) == is_slow


@pytest.mark.parametrize(
    ("values", "is_slow"),
    [({"engine": "memory"}, False), ({"shared_url": "sqlite"}, False), ({"shared_url": "postgresql"}, True)],
    ids=str,
)
def test_a_long_contract_runs_on_one_database(
    request: pytest.FixtureRequest, values: dict[str, object], is_slow: bool
) -> None:
    item = function_of(request, "contract/test_log.py", **values)
    item.add_marker(LONG)
    mark_slow([item])
    assert (item.get_closest_marker("slow") is not None) == is_slow


@pytest.mark.parametrize(
    ("path", "is_slow"),
    [
        ("fault", True),
        ("fault/test_bulk.py", True),
        ("acceptance/test_wheel.py", True),
        ("acceptance", False),
        ("acceptance/test_order.py", False),
        ("unit/test_wheel.py", False),
        (".", False),
    ],
)
def test_a_module_of_slow_tests_is_imported_by_those_runs_that_take_some(path: str, is_slow: bool) -> None:
    assert is_left_out(TESTS / path, EVERYDAY) == is_slow
    assert not is_left_out(TESTS / path, "slow")
    assert not is_left_out(TESTS / path, "")


def test_each_test_is_in_one_part(items: list[pytest.Item]) -> None:
    parts = [part_of(items, f"{number}/3")[0] for number in (1, 2, 3)]
    assert sorted(item.nodeid for part in parts for item in part) == sorted(item.nodeid for item in items)


@pytest.mark.parametrize("part", ["0/3", "4/3"])
def test_a_part_that_does_not_exist_is_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match="name it as 1/3 to 3/3"):
        part_of([], part)
