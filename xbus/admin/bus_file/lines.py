"""Finds the line of each entry of a TOML file, which :mod:`tomllib` does not tell."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value, such as ``("service", 0, "name")``."""


def locate(text: str) -> dict[Path, int]:
    """Find the line of each table and key of a well-formed TOML text, counted from 1.

    A key inside an inline table or an array has the line where that begins, under its own path.
    """
    lines: dict[Path, int] = {}
    sizes: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        keys = _keys(tomllib.loads(statement))
        path = (*table, *keys)
        if statement.lstrip().startswith("["):
            path = table = _table_path(keys, statement.lstrip().startswith("[["), sizes)
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def error_line(error: tomllib.TOMLDecodeError, text: str) -> int:
    """Find the line where a TOML text is malformed; the parser names it in its message only."""
    found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
    return int(found.group(1)) if found else len(text.rstrip().split("\n"))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Iterate over each statement with its first line: the lines up to where they are TOML by themselves."""
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        first = first if statement else number
        statement += line + "\n"
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield first, statement
        statement = ""


def _keys(parsed: dict[str, Any]) -> tuple[str, ...]:
    """Read the keys of a header or of the left side of a statement, by parsing it."""
    keys: tuple[str, ...] = ()
    value: Any = parsed
    while isinstance(value, dict) and len(value) == 1:
        ((key, value),) = value.items()
        keys = (*keys, key)
    return keys


def _table_path(keys: tuple[str, ...], is_array: bool, sizes: dict[Path, int]) -> Path:
    """Give the path of a header's table; the name of an array on the way means its last table."""
    path: Path = ()
    for key in keys[:-1]:
        path = (*path, key)
        if path in sizes:
            path = (*path, sizes[path] - 1)
    path = (*path, keys[-1])
    if is_array:
        sizes[path] = sizes.get(path, 0) + 1
        path = (*path, sizes[path] - 1)
    return path
