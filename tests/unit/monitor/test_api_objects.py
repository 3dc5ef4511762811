"""Answers of the REST interface are JSON, and harmless on a terminal."""

import json
from datetime import UTC, datetime

from xbus.monitor.rest import ObjectResponse, answer_list

ODD = "\x1b[2J\x9b31m\x7f\u202e\u2028 Größe \ud800"
"""Sequences that clear a terminal or turn its text, a letter of a name, and half a surrogate pair."""


def test_strings_of_others_come_back_and_move_nothing_on_a_terminal() -> None:
    body = bytes(ObjectResponse({ODD: [ODD]}).body)
    assert json.loads(body) == {ODD: [ODD]}
    assert body.decode().removesuffix("\n").isprintable()
    assert "Größe" in body.decode()


def test_a_list_says_where_it_goes_on() -> None:
    at = datetime(2030, 5, 17, 12, tzinfo=UTC)
    body = bytes(answer_list([{"at": at, "hash": b"\x01"}], {"before": 7}).body)
    assert json.loads(body) == {"found": [{"at": "2030-05-17T12:00:00+00:00", "hash": "01"}], "next": {"before": 7}}
