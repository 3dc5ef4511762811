"""Secret fields of items are hidden, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.repair.payload import MASK, Kind, Payload, mask, numbered_mask, unmask
from xbus.errors import Refused
from xbus.rpc.codec import pack, unpack

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=9,
)


@pytest.mark.parametrize(
    ("value", "path", "masked"),
    [
        ({"iban": "DE02"}, "iban", {"iban": MASK}),
        ({"card": {"number": 4711, "of": "Ada"}}, "card.number", {"card": {"number": MASK, "of": "Ada"}}),
        ({"card": {"number": 4711}, "number": 7}, "number", {"card": {"number": 4711}, "number": MASK}),
        ({"card": {"number": 4711}}, "card", {"card": MASK}),
        ({"cards": [{"number": 1}, {"number": [2, 3]}]}, "cards.number", {"cards": [{"number": MASK}] * 2}),
        ([[{"iban": "DE02"}]], "iban", [[{"iban": MASK}]]),
        ({"card.number": 4711}, "card.number", {"card.number": MASK}),
        ({"a": {"b.c": 1}}, "a.b.c", {"a": {"b.c": MASK}}),
        ({b"iban": "DE02", 7: "x"}, "iban", {b"iban": MASK, 7: "x"}),
        ({7: "x"}, "7", {7: MASK}),
        ({"iban": None}, "iban", {"iban": MASK}),
        ({"IBAN": "DE02", "ibans": "x"}, "iban", {"IBAN": "DE02", "ibans": "x"}),
        ("iban", "iban", "iban"),
        (b"iban", "iban", b"iban"),
        (None, "iban", None),
    ],
)
def test_the_values_of_secret_keys_are_hidden(value: Any, path: str, masked: Any) -> None:
    assert mask(value, {path}) == masked


@given(VALUES)
def test_without_secret_keys_all_stays_as_it_is(value: Any) -> None:
    assert mask(value, set()) == value
    assert mask(value, {"d", "a.d", "b.a.d"}) == value


@given(VALUES)
def test_no_value_of_a_secret_key_is_left(value: Any) -> None:
    def left(inner: Any) -> list[Any]:
        if isinstance(inner, dict):
            return [inner[key] for key in inner if key == "a"] + [each for key in inner for each in left(inner[key])]
        return [each for element in inner for each in left(element)] if isinstance(inner, list) else []

    paths = {".".join((*above, "a")) for above in [(), *([x] for x in "abc"), *([x, y] for x in "abc" for y in "abc")]}
    if _depth(value) <= 3:
        assert set(left(mask(value, paths))) <= {MASK}


def _depth(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return max(map(_depth, value), default=0)
    return 0


def test_what_was_sent_is_not_touched() -> None:
    value: Any = {"card": {"number": 4711}}
    mask(value, {"card.number"})
    assert value == {"card": {"number": 4711}}


@pytest.mark.parametrize(
    ("data", "kind"), [(pack({"iban": "DE02"}), Kind.MSGPACK), (json.dumps({"iban": "DE02"}).encode(), Kind.JSON)]
)
def test_a_payload_is_shown_without_secrets(data: bytes, kind: Kind) -> None:
    payload = Payload.of(data, {"iban"})
    assert payload.kind is kind
    assert [*payload.lines()] == ['{"iban": "***"}']
    assert payload.plain == {"iban": MASK}


@pytest.mark.parametrize("data", [b"iban DE02", b"\xff\x00iban"])
def test_a_payload_that_is_no_map_stays_as_it_is(data: bytes) -> None:
    assert [*Payload.of(data, {"iban"}).lines()] == [*Payload.of(data).lines()]


# -- corrections -------------------------------------------------------------------------------------------------------


@given(VALUES)
def test_what_a_person_leaves_as_it_is_stays_so(value: Any) -> None:
    for paths in (set[str](), {"a", "b.a", "c"}):
        assert unmask(numbered_mask(value, paths), value, paths) == value


def test_secrets_go_where_a_person_puts_their_masks() -> None:
    present: Any = {"paid": [{"iban": "DE02", "sum": 7}, {"iban": b"DE03"}, {"iban": None}]}
    shown: Any = numbered_mask(present, {"paid.iban"})
    assert shown == {"paid": [{"iban": "***1", "sum": 7}, {"iban": "***2"}, {"iban": "***3"}]}
    written: Any = {"paid": [{"iban": "***2"}, {"iban": "DE99"}, {"iban": "***1", "sum": 8}]}
    assert unmask(written, present, {"paid.iban"}) == {
        "paid": [{"iban": b"DE03"}, {"iban": "DE99"}, {"iban": "DE02", "sum": 8}]
    }


def test_a_mask_elsewhere_is_a_text() -> None:
    assert unmask({"rating": "***1"}, {"iban": "DE02"}, {"iban"}) == {"rating": "***1"}
    assert unmask("***1", {"iban": "DE02"}, {"iban"}) == "***1"
    assert unmask({"iban": "***1 and more"}, {"iban": "DE02"}, {"iban"}) == {"iban": "***1 and more"}


@pytest.mark.parametrize("written", ["***", "***0", "***2", "***999999999"])
def test_a_mask_of_no_value_is_refused(written: str) -> None:
    with pytest.raises(Refused) as caught:
        unmask({"iban": written}, {"iban": "DE02"}, {"iban"})
    assert caught.value.code == "bad_mask"


def test_an_item_is_changed_beside_its_secrets() -> None:
    # JSON has no way to write the bytes, and need not.
    payload = Payload.of(pack({"iban": b"\xff", "sum": 7}), {"iban"})
    text = payload.editable()
    assert json.loads(text) == {"iban": "***1", "sum": 7}
    assert unpack(payload.rewritten(text.replace("7", "8"))) == {"iban": b"\xff", "sum": 8}
    assert unpack(payload.replaced('{"iban": "***1"}')) == {"iban": b"\xff"}
