"""Describes an error of the bus to programs that call by HTTP, as ``application/problem+json`` (RFC 9457). Pure."""

import json
from http import HTTPStatus

from xbus.ending import printable_lines
from xbus.errors import XbusError

PROBLEM_TYPE = "application/problem+json"


def problem_details(error: XbusError, status: HTTPStatus) -> str:
    """Write the body of an answer that tells an error: its cause, its code, and what to do."""
    content = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status,
        "detail": printable_lines(error.cause),
        "code": error.code,
        "next_step": printable_lines(error.next_step),
    }
    return f"{json.dumps(content, separators=(',', ':'))}\n"
