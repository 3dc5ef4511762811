"""Headers as texts, for people and for columns."""

from datetime import UTC, datetime
from typing import Any

import pytest

from xbus.errors import Refused
from xbus.headers import header_of_text, header_texts, joined_texts, pack_headers


def test_values_become_texts() -> None:
    at = datetime(2030, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
    given: dict[str, Any] = {"text": "é", "whole": -7, "ratio": 0.5, "yes": True, "no": False, "at": at}
    assert header_texts(pack_headers(given)) == {
        "text": "é",
        "whole": "-7",
        "ratio": "0.5",
        "yes": "true",
        "no": "false",
        "at": "2030-01-31T12:00:00.250000Z",
    }
    assert header_texts(None) == {}


def test_an_event_has_those_of_its_envelope_too() -> None:
    of_envelope, of_event = pack_headers({"a": 1, "b": 1}), pack_headers({"b": 2})
    assert joined_texts(of_envelope, of_event) == {"a": "1", "b": "2"}
    assert joined_texts(None, of_event) == {"b": "2"}


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("a=b", ("a", "b")),
        ("a=", ("a", "")),
        ("a=b=c:=d", ("a", "b=c:=d")),
        ("a=7", ("a", "7")),
        ("a:=7", ("a", 7)),
        ("a:=-0.5", ("a", -0.5)),
        ("a:=true", ("a", True)),
        ('a:="b"', ("a", "b")),
        ("=b", ("", "b")),
    ],
)
def test_options_of_commands(option: str, found: tuple[str, object]) -> None:
    assert header_of_text(option) == found


@pytest.mark.parametrize(
    ("option", "cause"),
    [("a", "'a' is no header"), ("a:=b", "header a is no JSON: 'b'"), ("a:=" + "[" * 9999, "no JSON")],
)
def test_bad_options_are_refused(option: str, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as refusal:
        header_of_text(option)
    assert refusal.value.code == "bad_header"
    assert refusal.value.next_step
