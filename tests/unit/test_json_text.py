"""JSON is read so that nothing of it gets lost, by one reader."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sources import modules_with
from xbus.json_text import exact_float, parse_json
from xbus.json_views import TOO_DEEP, cut, has_one_name_twice

MACHINE_MADE = {
    "bots/job.py",
    "broker/back/recipients/handshake.py",
    "broker/journal/fsck/values.py",
    "broker/journal/objects/claiming.py",
    "admin/repair/payload.py",
    "broker/journal/operations/losses.py",
    "broker/leading.py",
    "json_text.py",
}
"""Files that read JSON which the bus itself has written, or compare it."""


@given(st.floats(-1e308, 1e308))
@pytest.mark.parametrize("form", ["{!r}", "{:.17g}", "{:.16e}", "{:.15g}"])
def test_what_other_programs_write_of_a_double_is_read(form: str, value: float) -> None:
    text = form.format(value)
    assert exact_float(text) == float(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=2))
def test_an_amount_is_read(value: object) -> None:
    assert parse_json(f"[{value}]") == [float(str(value))]


@pytest.mark.parametrize("text", ["12345678901234567.89", "0.1234567890123456789", "3e-324", "0." + "1" * 5000])
def test_digits_that_a_double_has_not_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more digits than a double holds: write it as a text"):
        parse_json(text)


@pytest.mark.parametrize(
    "text", ["1e-400", "-1E-400", "2e-324", "1e-999999999999999999999", "0." + "0" * 400 + "1", "0." + "0" * 5000 + "1"]
)
def test_a_number_that_becomes_zero_is_too_small(text: str) -> None:
    with pytest.raises(ValueError, match="is too small for a double: write it as a text"):
        parse_json(f"[{text}]")


@pytest.mark.parametrize("text", ["0.0", "-0.0", "0e-400", "0.00e5"])
def test_zero_is_zero(text: str) -> None:
    assert parse_json(text) == 0


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"b":{"a":1,"c":2,"\\u0061":3}}]'])
def test_a_name_that_comes_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='a map has the name "a" twice'):
        parse_json(text)


def test_values_that_fit_are_read_as_by_the_library() -> None:
    text = '{"a": [1, -0.0, 1e5, true, null, "\\u00e9", {"a": 18446744073709551615}], "A": 1.50}'
    assert parse_json(text) == json.loads(text)
    assert parse_json(b"\xef\xbb\xbf[1]") == [1]


def test_all_doors_read_json_by_one_reader() -> None:
    found = set()
    for path, module in modules_with(("json.load", "json.JSONDecoder"), "xbus"):
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load", "json.JSONDecoder"):
                found.add(path.removeprefix("xbus/"))
    assert found <= MACHINE_MADE


def test_a_value_is_cut_only_where_it_is_too_deep() -> None:
    shallow = {"a": [1, {"b": (2,)}]}
    assert cut(shallow) is shallow
    deep: object = "end"
    for _ in range(300):
        deep = [deep]
    text = json.dumps(cut([deep, 1]))
    assert text.count("[") == 100
    assert TOO_DEEP in text
    assert "end" not in text


def test_keys_of_one_name_are_found() -> None:
    assert has_one_name_twice([{"a": {1: 1, "1": 2}}])
    assert has_one_name_twice({None: 1, "null": 2})
    assert not has_one_name_twice([{1: 1, "2": 2}, {"1": 1}])
