"""Items as people read and write them."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.repair.payload import SHOWN_BYTES, SHOWN_CHARACTERS, Kind, Payload, read_json
from xbus.admin.search import any_text
from xbus.errors import Refused
from xbus.rpc.codec import pack, unpack

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_what_an_editor_leaves_as_it_is_stays_so(value: dict[str, Any]) -> None:
    payload = Payload.of(pack(value))
    assert payload.kind is Kind.MSGPACK
    assert unpack(payload.rewritten(payload.editable())) == value


@given(st.binary(max_size=60))
def test_any_bytes_can_be_shown_and_obey_nothing(data: bytes) -> None:
    payload = Payload.of(data)
    assert all(character.isprintable() or character == "\t" for line in payload.lines() for character in line)
    json.dumps(payload.plain)


@pytest.mark.parametrize(
    ("data", "kind", "lines"),
    [
        (pack({"a": 1, "é": None}), Kind.MSGPACK, ['{"a": 1, "é": null}']),
        (pack({1: b"\x00\xff"}), Kind.MSGPACK, ['{"1": "bytes 00ff"}']),
        (pack([math.nan, {"a": -math.inf}]), Kind.MSGPACK, ['["nan", {"a": "-inf"}]']),
        (pack("\x1b[2J"), Kind.MSGPACK, ['"\\u001b[2J"']),
        (pack("\x9b2J"), Kind.MSGPACK, ['"\\x9b2J"']),
        (pack(["x" * 60, "y" * 60]), Kind.MSGPACK, ["[", f'  "{"x" * 60}",', f'  "{"y" * 60}"', "]"]),
        (b'{"a": [1, 2]}', Kind.JSON, ['{"a": [1, 2]}']),
        (b"12", Kind.JSON, ["12"]),
        (b"a", Kind.TEXT, ["a"]),
        (b"UNB+1\nUNZ", Kind.TEXT, ["UNB+1", "UNZ"]),
        (b"", Kind.TEXT, [""]),
        (b"\xc1\x00", Kind.BYTES, ["c1 00"]),
        (b"a\x1b[2J", Kind.BYTES, ["61 1b 5b 32 4a"]),
        (b"\xc1" * (SHOWN_BYTES + 1), Kind.BYTES, [" ".join(["c1"] * SHOWN_BYTES) + " ..."]),
        (b"ab" * SHOWN_CHARACTERS, Kind.TEXT, ["ab" * (SHOWN_CHARACTERS // 2) + " ..."]),
    ],
    ids=str,
)
def test_an_item_is_shown_as_what_it_is(data: bytes, kind: Kind, lines: list[str]) -> None:
    payload = Payload.of(data)
    assert (payload.kind, list(payload.lines())) == (kind, lines)


@pytest.mark.parametrize("value", [{"a": b"bytes"}, {1: "a"}, b"\xc1", float("nan")], ids=repr)
def test_what_json_can_not_write_is_not_edited(value: object) -> None:
    with pytest.raises(Refused, match="JSON lacks"):
        Payload.of(value if isinstance(value, bytes) else pack(value)).editable()


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "{'a': 1}", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="that is no JSON") as refused:
        read_json(text)
    assert refused.value.code == "bad_json"


def msgpack_of_depth(depth: int) -> bytes:
    return b"\x91" * (depth - 1) + b"\x90"


def json_of_depth(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("depth", [100, 101, 600, 900])
@pytest.mark.parametrize("write", [msgpack_of_depth, json_of_depth])
def test_an_item_that_is_nested_deep_is_shown(depth: int, write: Any) -> None:
    payload = Payload.of(write(depth), frozenset({"card.number"}))
    assert [*payload.lines()]
    json.dumps(payload.plain)
    assert any_text("too deep")(payload.value) == (depth > 100)
    if depth > 100:
        with pytest.raises(Refused) as refused:
            payload.editable()
        assert refused.value.code == "not_editable"


def test_keys_of_the_same_name_in_json_are_kept() -> None:
    payload = Payload.of(pack({"a": {1: "x", "1": "y"}, True: None}))
    assert payload.plain == {"a": [[1, "x"], ["1", "y"]], "true": None}
    assert [*payload.lines()] == ['{"a": [[1, "x"], ["1", "y"]], "true": null}']
    with pytest.raises(Refused):
        payload.editable()


@pytest.mark.parametrize("text", [b'{"iban":"DE02","iban":"DE03"}', b'{"iban":"DE02","n":12345678901234567.89}'])
def test_json_of_which_something_would_get_lost_is_shown_as_text(text: bytes) -> None:
    assert [*Payload.of(text).lines()] == [text.decode()]
    assert [*Payload.of(text, frozenset({"iban"})).lines()] == ["***"]


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "12345678901234567.89", "1e-400", "9007199254740993.0", "1e999"]
)
def test_a_correction_that_would_lose_something_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        Payload.of(pack(1)).rewritten(text)
    assert refused.value.code == "bad_json"


HALF_PAIRS = b'{"\\ud800": "\\udfff", "name": "\xc3\xa9 \\ud83d\\ude00"}'


def test_half_of_a_pair_of_surrogates_is_edited_as_it_came() -> None:
    payload = Payload.of(HALF_PAIRS)
    text = payload.editable()
    assert text.encode().isascii() is False
    assert json.loads(payload.rewritten(text)) == json.loads(HALF_PAIRS)
    assert json.loads(payload.replaced('{"name": "\\udc00"}')) == {"name": "\udc00"}
