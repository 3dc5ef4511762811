"""Aligned columns for people."""

from collections.abc import Iterator, Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Write the lines of a table: two blanks between columns, columns of numbers to the right, None as a dash."""
    cells = [[*heads], *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [_is_numeric([row[number] for row in rows]) for number in range(len(heads))]
    for line in cells:
        aligned = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(line, widths, right, strict=True)
        )
        yield "  ".join(aligned).rstrip()


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str) -> str:
    """Write the text on one line, without what a terminal would obey: recipients may have written it."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def _is_numeric(column: Sequence[object]) -> bool:
    return any(isinstance(value, int) for value in column)
