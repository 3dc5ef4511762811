"""Verbs, and arguments that fit them or not."""

from typing import Any

import pytest

from xbus.errors import ConfigurationError, Refused
from xbus.rpc.codec import Key, Value
from xbus.rpc.dispatch import Dispatch, undoes, verb


class Verbs:
    """Methods of all kinds of parameters."""

    @verb("text")
    def text(self, value: str) -> str:
        return value

    @verb("data")
    def data(self, value: bytes) -> bytes:
        return value

    @verb("xbus.number")
    def number(self, value: int) -> int:
        return value

    @verb("flag")
    def flag(self, value: bool) -> bool:
        return value

    @verb("array")
    def array(self, value: list[int]) -> list[int]:
        return value

    @verb("table")
    def table(self, value: dict[str, Any]) -> dict[str, Any]:
        return value

    @verb("maybe")
    def maybe(self, value: str | None) -> str | None:
        return value

    @verb("anything")
    def anything(self, value: Any) -> Any:
        return value

    @verb("unsaid")
    def unsaid(self, value):  # type: ignore[no-untyped-def]
        return value

    @verb("several")
    def several(self, first: str, second: int = 2) -> list[object]:
        return [first, second]

    def unmarked(self) -> None:
        raise AssertionError("not reachable")


@pytest.fixture
def dispatch() -> Dispatch:
    return Dispatch(Verbs())


FITTING: list[tuple[str, object]] = [
    ("text", "a"),
    ("data", b"a"),
    ("xbus.number", 7),
    ("flag", True),
    ("array", [1]),
    ("table", {"a": 1}),
    ("maybe", "a"),
    ("maybe", None),
    ("anything", 1.5),
    ("unsaid", [None]),
]
UNFITTING: list[tuple[str, object]] = [
    ("text", b"a"),
    ("text", None),
    ("data", "a"),
    ("data", 50000000),
    ("xbus.number", True),
    ("xbus.number", 1.0),
    ("flag", 1),
    ("array", {}),
    ("table", []),
    ("maybe", b"a"),
]


@pytest.mark.parametrize(("name", "value"), FITTING)
def test_a_fitting_argument_reaches_the_method(dispatch: Dispatch, name: str, value: Value) -> None:
    assert dispatch.call(name, [value], {}) == value
    assert dispatch.call(name, [], {"value": value}) == value


@pytest.mark.parametrize(("name", "value"), UNFITTING)
def test_another_type_is_refused(dispatch: Dispatch, name: str, value: Value) -> None:
    named: dict[Key, Value] = {"value": value}
    for args, kwargs in (([value], {}), ([], named)):
        with pytest.raises(Refused, match=f"{name}: value is") as caught:
            dispatch.call(name, args, kwargs)
        assert caught.value.code == "wrong_arguments"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [([], {}), (["a", 1, 2], {}), (["a"], {"first": "b"}), (["a"], {"third": 3}), ([], {"second": 2}), (["a"], {5: 1})],
)
def test_another_number_of_arguments_is_refused(dispatch: Dispatch, args: list[Any], kwargs: dict[Any, Any]) -> None:
    with pytest.raises(Refused) as caught:
        dispatch.call("several", args, kwargs)
    assert caught.value.code == "wrong_arguments"


def test_defaults_fill_what_is_not_given(dispatch: Dispatch) -> None:
    assert dispatch.call("several", ["a"], {}) == ["a", 2]
    assert dispatch.call("several", [], {"first": "a"}) == ["a", 2]


@pytest.mark.parametrize("name", ["", "unmarked", "number", "__init__", "xbus", "text.text", "t" * 10000])
def test_only_marked_methods_can_be_called(dispatch: Dispatch, name: str) -> None:
    with pytest.raises(Refused) as caught:
        dispatch.call(name, [], {})
    assert caught.value.code == "unknown_method"


def test_several_objects_share_one_table() -> None:
    class More:
        @verb("more")
        def more(self) -> int:
            return 1

    both = Dispatch(Verbs(), More())
    assert {"text", "more"} <= both.verbs
    assert both.call("more", [], {}) == 1


def test_a_verb_is_served_once() -> None:
    with pytest.raises(ConfigurationError, match="two methods"):
        Dispatch(Verbs(), Verbs())


def test_an_answer_is_undone_by_the_method_of_its_verb_where_there_is_one() -> None:
    undone: list[int] = []

    class Giving:
        @verb("give")
        def give(self) -> int:
            return 1

        @undoes("give")
        def undo_giving(self, given: int) -> None:
            undone.append(given)

    dispatch = Dispatch(Verbs(), Giving())
    dispatch.undo("give", 1)
    dispatch.undo("text", 2)
    assert undone == [1]
    assert "undo_giving" not in dispatch.verbs


def test_what_cannot_be_checked_is_found_at_the_start() -> None:
    class Unchecked:
        @verb("unchecked")
        def unchecked(self, *values: str) -> None: ...

    class Strange:
        @verb("strange")
        def strange(self, value: set[int]) -> None: ...

    for served in (Unchecked(), Strange()):
        with pytest.raises(ConfigurationError, match="can't be checked"):
            Dispatch(served)
