"""Values of items as JSON can show them: bounded in depth, and with no key lost. Pure."""

import json
from collections.abc import Callable, Mapping

DEEPEST = 100
"""Maps and lists within each other that are shown. Functions that go through a value call themselves up to three times
a level, and Python ends them at 1,000 calls."""

TOO_DEEP = "... (nested too deep to be shown)"
"""The text in place of a map or a list beyond that."""


def is_deep(value: object) -> bool:
    """Check whether maps and lists are nested too deep to be shown."""
    level = [value]
    for _ in range(DEEPEST):
        level = [each for one in level for each in _members(one) if isinstance(each, dict | list | tuple)]
        if not level:
            return False
    return True


def cut(value: object) -> object:
    """Give the value itself, or what can be shown of one that is nested too deep."""
    return _cut(value, DEEPEST) if is_deep(value) else value


def has_one_name_twice(value: object) -> bool:
    """Check whether keys of a map are the same name in JSON, such as 1 and "1"."""
    level = [value]
    while level:
        if any(_has_one_name_twice(each) for each in level if isinstance(each, Mapping)):
            return True
        level = [each for one in level for each in _members(one) if isinstance(each, dict | list | tuple)]
    return False


def json_map(value: Mapping[object, object], plain: Callable[[object], object]) -> object:
    """Give a map the form that JSON has for it. If two keys are the same name, it is a list of pairs of key and value.

    Args:
        value: the map.
        plain: gives a key or a value a form that JSON has.
    """
    found = {name_of(key, plain): plain(each) for key, each in value.items()}
    if len(found) == len(value):
        return found
    return [[plain(key), plain(each)] for key, each in value.items()]


def name_of(key: object, plain: Callable[[object], object] = repr) -> str:
    """Give the name that a key has in JSON."""
    if isinstance(key, str):
        return key
    return json.dumps(key) if key is None or isinstance(key, bool) else str(plain(key))


def _has_one_name_twice(value: Mapping[object, object]) -> bool:
    return not set(map(type, value)) <= {str} and len(set(map(name_of, value))) < len(value)


def _members(value: object) -> "list[object] | tuple[object, ...]":
    if isinstance(value, Mapping):
        return [*value.values()]
    return value if isinstance(value, list | tuple) else ()


def _cut(value: object, depth: int) -> object:
    if isinstance(value, Mapping):
        return {key: _cut(each, depth - 1) for key, each in value.items()} if depth else TOO_DEEP
    if isinstance(value, list | tuple):
        return [_cut(each, depth - 1) for each in value] if depth else TOO_DEEP
    return value
