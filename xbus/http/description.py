"""Describes the operations of the gateway as OpenAPI 3.1. Pure."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from xbus.http.dialects.gateway import Operation
from xbus.http.problems import STATUSES
from xbus.web.problem_details import PROBLEM_TYPE

PROBLEM = {
    "type": "object",
    "description": "A problem (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code", "next_step"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The cause."},
        "code": {"type": "string", "description": "The cause in a word that stays the same."},
        "next_step": {"type": "string", "description": "The advice."},
    },
}


def describe(operations: Iterable[Operation], version: str) -> dict[str, object]:
    """Describe all operations.

    Args:
        operations: of all dialects.
        version: of the bus.
    """
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Xbus by HTTP", "version": version},
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic", "description": "The token is the user name."},
            },
        },
    }


def _described(operation: Operation) -> dict[str, object]:
    described: dict[str, object] = {
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *_parameters("query", operation.query),
            *_parameters("header", operation.parameters),
        ],
        "responses": {**_answers(operation), **_problems(operation)},
        "security": [{"bearer": []}, {"basic": []}] if operation.needs_token else [],
    }
    if operation.media_types:
        content: dict[str, object] = {media_type: {} for media_type in operation.media_types}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(path: str) -> list[object]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _answers(operation: Operation) -> dict[str, object]:
    content = {media_type: {"schema": schema} if schema else {} for media_type, schema in operation.produces.items()}
    return {
        str(status): {"description": meaning, **({"content": content} if content and status != NO_CONTENT else {})}
        for status, meaning in operation.answers.items()
    }


def _parameters(place: str, parameters: Mapping[str, str]) -> list[object]:
    return [
        {"name": name, "in": place, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in parameters.items()
    ]


def _problems(operation: Operation) -> dict[str, object]:
    codes: dict[HTTPStatus, list[str]] = {}
    for code in operation.problems:
        codes.setdefault(_status(code), []).append(code)
    told = (
        {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}} if operation.explains else {}
    )
    return {
        str(status.value): {"description": f"{status.phrase}: {', '.join(found)}", **told}
        for status, found in sorted(codes.items())
    }


def _status(code: str) -> HTTPStatus:
    default = HTTPStatus.SERVICE_UNAVAILABLE if code in FAILURES else HTTPStatus.UNPROCESSABLE_ENTITY
    return STATUSES.get(code, default)


NO_CONTENT = HTTPStatus.NO_CONTENT

FAILURES = frozenset({"gateway_full", "journal_unavailable", "timed_out"})
"""The codes of operations that are failures, and have no status of their own."""
