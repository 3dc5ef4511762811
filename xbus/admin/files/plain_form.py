"""The form of a file that has no descriptor: what its name says, or whoever sends it."""

import re
from dataclasses import dataclass
from pathlib import Path

from xbus.admin.files.source import PACKED
from xbus.errors import XbusError

CSV, TSV, JSON_LINES = "csv", "tsv", "jsonl"
KINDS = (CSV, TSV, JSON_LINES)

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""The delimiters that are looked for, and their names; the first one where nothing speaks for another."""

_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class PlainForm:
    """The form of a file, as far as anybody says it beside its name.

    Args:
        kind: one of ``KINDS``; "" for what the name says.
        delimiter: between two fields of CSV; "" for what the name or the first line says.
    """

    kind: str = ""
    delimiter: str = ""

    def complete(self, path: Path) -> "PlainForm":
        """Add what the name of a file says.

        Raises:
            XbusError: nothing says the kind (``unknown_format``).
        """
        kind = self.kind or path.name.lower().removesuffix(PACKED).rpartition(".")[2]
        if kind not in KINDS:
            raise XbusError(
                f"{path} is neither .csv, .tsv nor .jsonl",
                "say what it is with --format, convert it, or name a descriptor",
                code="unknown_format",
            )
        return PlainForm(kind, self.delimiter or ("\t" if kind == TSV else ""))


AS_NAMED = PlainForm()
"""Nobody says more than the name."""


def delimiter_in(first_line: str) -> str:
    """Find the delimiter of CSV by the names in its first line: the most frequent one outside of quotes."""
    names = _QUOTED.sub("", first_line)
    return max(DELIMITERS, key=names.count)
