"""Paging by size: how much is read at once is bounded in bytes, however large the rows are; pure.

The sizes of the next rows are read first, and then the rows of one page: a page of which nothing is known might not
fit into memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Sequence[Any])


def pages(rows: Sequence[Row], max_bytes: int) -> Iterator[Sequence[Row]]:
    """Read rows that follow each other, in pages.

    Args:
        rows: each with its size in bytes as the last column.
        max_bytes: rows are added to a page until they would exceed this; the first one of a page always fits.
    """
    start = total = 0
    for place, row in enumerate(rows):
        size = row[-1]
        if place > start and total + size > max_bytes:
            yield rows[start:place]
            start, total = place, 0
        total += size
    if rows:
        yield rows[start:]


def first_page(rows: Sequence[Row], max_bytes: int) -> Sequence[Row]:
    """Read the first of :func:`pages`, with no rows if the query finds none."""
    return next(pages(rows, max_bytes), ())
