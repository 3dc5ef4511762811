"""Answers of the REST interface are JSON, and harmless on a terminal."""

import json
from datetime import UTC, datetime

from fastapi.openapi.utils import get_openapi

from xbus.monitor.program import build_frame
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


def _queries() -> dict[str, set[str]]:
    """The parameters of each address that answers a program, as the interface is described."""
    paths = get_openapi(title="Xbus", version="1", routes=build_frame().routes)["paths"]
    return {
        path: {each["name"] for each in found["get"].get("parameters", ())}
        for path, found in paths.items()
        if "get" in found
    }


def test_an_address_takes_what_its_command_takes() -> None:
    queries = _queries()
    shared = {"state", "role", "code", "owner", "before", "limit"}
    assert queries["/api/failures"] == {*shared, "envelope", "group"}
    assert queries["/api/failures/groups"] == shared
    assert queries["/api/runs"] == {"bot", "state", "before", "limit"}
    assert queries["/api/parked/{envelope_id}"] == {"envelope_id", "role", "event", "item", "items"}


def test_no_address_shows_secrets_or_writes_files() -> None:
    assert not {"show_secrets", "raw", "svg"} & set().union(*_queries().values())
