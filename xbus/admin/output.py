"""Output of several commands: facts and tables for people, JSON for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from xbus.admin.table import printable, table

SHOWN_INDICES = 5


def facts(known: Mapping[str, object]) -> Iterator[str]:
    """Write one line for each existing fact, the values below each other."""
    width = max(map(len, known)) + 1
    return (f"{name:<{width}} {_fact(value)}" for name, value in known.items() if value is not None)


def block(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Write a table under a title behind an empty line; nothing without rows."""
    if rows:
        yield ""
        yield title
        yield from (f"  {line}" for line in table(heads, rows))


def moment(at: datetime | None) -> str | None:
    """Write a moment to the second, in UTC."""
    return None if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def some(indices: Sequence[int] | None) -> str | None:
    """Write the first few indices of items; None without any."""
    if not indices:
        return None
    return ", ".join(map(str, indices[:SHOWN_INDICES])) + (", ..." if len(indices) > SHOWN_INDICES else "")


def counted(number: int, what: str = "item") -> str:
    """Write ``1 item``, ``2 items``."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def one_json(value: Mapping[str, Any]) -> str:
    """Write an object in JSON on one line; ids and moments become text, hashes hexadecimal."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
