"""The REST interface: answers with the names of ``docs/json.md``, and its description by OpenAPI 3.1."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response

from xbus.admin.objects import JsonObject
from xbus.admin.output import escaped, plain
from xbus.monitor.rendering import TheVisitor


class ObjectResponse(Response):
    """An object as JSON on a line; ids and moments become text, hashes hexadecimal.

    Control characters of terminals are escaped, since people call the interface from a terminal, too.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Write the object."""
        written = json.dumps(content, default=plain, ensure_ascii=False, separators=(",", ":"))
        return f"{escaped(written)}\n".encode()


def answer_list(found: Iterable[JsonObject], after: Mapping[str, object] | None = None) -> ObjectResponse:
    """Answer with the objects of a list.

    Args:
        after: the parameters with which the list goes on; None where it ends.
    """
    return ObjectResponse({"found": list(found), "next": after})


router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request, _: TheVisitor) -> JSONResponse:
    """Describe the interface."""
    app = request.app
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _add_refusals(schema)
    _name_objects(schema)
    return JSONResponse(schema)


def _add_refusals(schema: dict[str, Any]) -> None:
    """Add the way to say who asks, and the form of refusals."""
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    components.setdefault("schemas", {})["Problem"] = {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "next_step"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string"},
            "next_step": {"type": "string"},
        },
    }
    schema["security"] = [{"token": []}]
    refusal = {
        "description": "A refusal; its code says which.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = refusal


def _name_objects(schema: dict[str, Any]) -> None:
    """Say that answers are objects: FastAPI takes those that the interface writes itself for texts."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            written = operation["responses"]["200"]["content"]["application/json"]
            if written["schema"] == {"type": "string"}:
                written["schema"] = {"type": "object"}
