"""The header Content-Type of requests. Pure."""

import re
from dataclasses import dataclass, field

from xbus.errors import Refused

_PARAMETER = re.compile(r""";\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)""")

UTF_8 = ("utf-8", "utf8", "us-ascii")


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type with its parameters.

    Args:
        name: the type and subtype in lower case; empty where a request has none.
        parameters: by their names.
    """

    name: str
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content_type: str) -> "MediaType":
        """Read the header."""
        name, _, _ = content_type.partition(";")
        found = {key.lower(): _unquoted(value) for key, value in _PARAMETER.findall(content_type)}
        return cls(name.strip().lower(), found)

    def check_utf_8(self) -> None:
        """Let a text in UTF-8 pass.

        Raises:
            Refused: the text is in something else (``unknown_format``).
        """
        charset = self.parameters.get("charset", "utf-8").lower()
        if charset not in UTF_8:
            raise Refused(f"the body is in {charset:.40}", "send it in UTF-8", code="unknown_format")


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
