"""What an annotation accepts of the wire."""

from typing import NotRequired, TypedDict

import pytest

from xbus.errors import Refused
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.messages import EnvelopeReceipt
from xbus.rpc.shapes import AnswerReader, Shape


class Told(TypedDict):
    name: str
    seconds: int | float
    details: NotRequired[Value]
    count: NotRequired[int | None]


class Inner(TypedDict):
    told: Told


WHOLE: dict[str, Value] = {"name": "n", "seconds": 1, "details": [b"x"], "count": None}


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", b"x", [], {}])
def test_value_stands_for_anything(value: Value) -> None:
    assert Shape(Value).fault(value) is None


@pytest.mark.parametrize("value", [WHOLE, {"name": "n", "seconds": 0.5}, {"name": "n", "seconds": 1, "later": "more"}])
def test_a_map_may_lack_what_is_not_required_and_have_more(value: Value) -> None:
    assert Shape(Told).fault(value) is None


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "is list where dict is expected"),
        (None, "is NoneType where dict is expected"),
        ({"name": "n"}, "has no field seconds"),
        ({"name": b"n", "seconds": 1}, "has a field name that is bytes where str is expected"),
        ({"name": "n", "seconds": True}, "has a field seconds that is bool where float or int is expected"),
        (WHOLE | {"count": "1"}, "has a field count that is str where NoneType or int is expected"),
    ],
)
def test_a_map_of_another_form_is_told_by_its_field(value: Value, fault: str) -> None:
    assert Shape(Told).fault(value) == fault


def test_maps_in_maps_are_looked_at() -> None:
    assert Shape(Inner).fault({"told": {"name": "n"}}) == "has a field told that has no field seconds"


@pytest.mark.parametrize("annotation", [set, object, Told | Inner])
def test_what_can_not_be_checked_is_said_at_once(annotation: object) -> None:
    with pytest.raises(TypeError, match="can't be checked"):
        Shape(annotation)


def test_an_answer_of_another_form_is_refused() -> None:
    reader = AnswerReader("xbus.end_envelope", EnvelopeReceipt)
    answer: Value = {"envelope_id": "e", "position": 1, "events": 1, "items": 1, "hash": b"h"}
    assert reader.read(answer) == answer
    with pytest.raises(Refused, match=r"the answer to xbus\.end_envelope is bool where dict is expected") as caught:
        reader.read(True)
    assert caught.value.code == "bad_answer"


class Verbs:
    @verb("tell")
    def tell(self, told: Told | None = None) -> str:
        return "nothing" if told is None else told["name"]


def test_the_fields_of_an_argument_are_checked() -> None:
    dispatch = Dispatch(Verbs())
    assert dispatch.call("tell", [], {}) == "nothing"
    assert dispatch.call("tell", [{"name": "n", "seconds": 1}], {}) == "n"
    with pytest.raises(Refused, match="tell: told has no field seconds") as caught:
        dispatch.call("tell", [{"name": "n"}], {})
    assert caught.value.code == "wrong_arguments"
