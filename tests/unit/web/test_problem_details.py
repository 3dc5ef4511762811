"""Errors as problems of HTTP: what others have said works on no terminal."""

import json
from http import HTTPStatus

from xbus.errors import Refused
from xbus.web.requests import problem_details


def test_control_characters_are_written_out() -> None:
    error = Refused('there is no reader "\x1b[2J\u202e"', "see\nxbus reader list \x07", code="unknown_name")
    told = json.loads(problem_details(error, HTTPStatus.NOT_FOUND))
    assert told["detail"] == 'there is no reader "\\x1b[2J\\u202e"'
    assert told["next_step"] == "see\nxbus reader list \\x07"
