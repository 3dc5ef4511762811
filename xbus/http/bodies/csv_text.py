"""Reads CSV (RFC 4180) row by row, from lines that come one by one."""

import csv
from collections.abc import AsyncIterator, Callable, Iterator

from xbus.errors import Refused


async def csv_rows(lines: AsyncIterator[bytes], keep: Callable[[int], None]) -> AsyncIterator[dict[str, str]]:
    """Iterate over the rows as maps of texts; the first row names the fields.

    Args:
        lines: in UTF-8, each with its end.
        keep: gets the bytes of each line of a row that goes on; at the end of the row minus their sum.

    Raises:
        Refused: the rows differ in their number of fields, a name comes twice, or the text is no CSV
            (``bad_body``); otherwise as ``keep``.
    """
    names: list[str] | None = None
    number = 0
    async for text in _records(lines, keep):
        number += 1
        for fields in _parsed(text, number):
            if names is None:
                names = fields
                if len(set(names)) < len(names):
                    raise _bad("the first row has a name twice")
            elif len(fields) != len(names):
                raise _bad(f"row {number} has {len(fields)} fields, and the first has {len(names)}")
            else:
                yield dict(zip(names, fields, strict=True))


async def _records(lines: AsyncIterator[bytes], keep: Callable[[int], None]) -> AsyncIterator[str]:
    """Join the lines of a field that has line ends in its quotes."""
    record: list[bytes] = []
    kept, quotes, is_first = 0, 0, True
    async for line in lines:
        record.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            yield _decoded(b"".join(record), is_first=is_first)
            keep(-kept)
            record, kept, quotes, is_first = [], 0, 0, False
        else:
            keep(len(line))
            kept += len(line)
    if record:
        raise _bad("the last row ends within quotes")


def _decoded(record: bytes, *, is_first: bool) -> str:
    try:
        return record.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError:
        raise _bad("a row is no UTF-8") from None


def _parsed(text: str, number: int) -> Iterator[list[str]]:
    """Read one record; an empty line is none."""
    try:
        yield from (fields for fields in csv.reader([text], strict=True) if fields)
    except csv.Error as error:
        raise _bad(f"row {number} can't be read ({error})") from None


def _bad(cause: str) -> Refused:
    return Refused(f"the body is no CSV: {cause}", "correct it", code="bad_body")
