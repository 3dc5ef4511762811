"""Cuts what is read into pages, by the size of rows or by their number; pure.

Pages by size bound the bytes that are read at once. The sizes of the next rows are read first, and then the rows of one
page: a page of which nothing is known might not fit into memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Sequence[Any])
T = TypeVar("T")


def portions(values: Iterable[T], most: int) -> Iterator[list[T]]:
    """Cut values into lists of so many at the most, in their order."""
    listed = list(values)
    for first in range(0, len(listed), most):
        yield listed[first : first + most]


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
