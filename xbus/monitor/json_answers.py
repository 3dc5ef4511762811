"""Answers of the REST interface: objects with the names of ``docs/json.md``."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from fastapi.responses import Response

from xbus.admin.objects import JsonObject
from xbus.admin.output import escaped


class ObjectResponse(Response):
    """An object as JSON on a line; ids and moments become text, hashes hexadecimal.

    Control characters of terminals are escaped, since people call the interface from a terminal, too.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Write the object."""
        written = json.dumps(content, default=_plain, ensure_ascii=False, separators=(",", ":"))
        return f"{escaped(written)}\n".encode()


def answer(found: JsonObject) -> ObjectResponse:
    """Answer with one object."""
    return ObjectResponse(found)


def answer_list(found: Iterable[JsonObject], after: Mapping[str, object] | None = None) -> ObjectResponse:
    """Answer with the objects of a list.

    Args:
        after: the parameters with which the list goes on; None where it ends.
    """
    return ObjectResponse({"found": list(found), "next": after})


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
