"""The answers of this dialect: its protocol tells an error by the status alone, so our code is in a header."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from xbus.errors import XbusError
from xbus.http.dialects.gateway import Answer, Gateway
from xbus.http.problems import problem

PROBLEM_CODE = "x-xbus-problem"
"""The header with our code: the protocol has no bodies."""

STATUSES: Mapping[str, HTTPStatus] = {
    "bad_body": HTTPStatus.BAD_REQUEST,
    "bad_items": HTTPStatus.BAD_REQUEST,
    "body_too_large": HTTPStatus.BAD_REQUEST,
    "item_too_large": HTTPStatus.BAD_REQUEST,
    "type_not_allowed": HTTPStatus.FORBIDDEN,
}
"""The statuses that differ from those of our own dialect."""


def nothing() -> Response:
    """Answer that it is done."""
    return Response(status_code=HTTPStatus.NO_CONTENT)


def emptily(answer: Answer) -> Answer:
    """Let an operation tell its errors without a body."""

    async def answered(gateway: Gateway, request: Request) -> Response:
        try:
            return await answer(gateway, request)
        except XbusError as error:
            told = problem(error)
            status = STATUSES.get(error.code, HTTPStatus(told.status_code))
            kept = {name: value for name, value in told.headers.items() if name in ("retry-after", "www-authenticate")}
            return Response(status_code=status, headers={**kept, PROBLEM_CODE: error.code})

    return answered
