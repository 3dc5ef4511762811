"""The form of a file that has no descriptor: what its name says, or whoever sends it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from xbus.admin.files.source import PACKED
from xbus.errors import XbusError
from xbus.files.csv_items import CsvForm

CSV, TSV, JSON_LINES = "csv", "tsv", "jsonl"
KINDS = (CSV, TSV, JSON_LINES)


@dataclass(frozen=True)
class PlainForm:
    """The form of a file, as far as anybody says it beside its name.

    Args:
        kind: one of ``KINDS``; "" for what the name says.
        csv: the form of CSV; without a delimiter the name or the first line says it.
    """

    kind: str = ""
    csv: CsvForm = field(default_factory=CsvForm)

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
        delimiter = self.csv.delimiter or ("\t" if kind == TSV else "")
        return PlainForm(kind, replace(self.csv, delimiter=delimiter))


AS_NAMED = PlainForm()
"""Nobody says more than the name."""
