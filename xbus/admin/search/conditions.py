"""Conditions on the fields of items, such as ``client.number=4711``; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from xbus.errors import Refused
from xbus.json_text import parse_json
from xbus.rpc.codec import Value


class Fit(Protocol):
    """Something that an item fits, or not."""

    def fits(self, item: Value) -> bool:
        """Check whether an item fits."""


@dataclass(frozen=True, slots=True)
class AnyText:
    """A text must be in the item: in a name, a text or a number of it, in capitals or not.

    Args:
        folded: the text, without regard to capitals.
    """

    folded: str

    @classmethod
    def of(cls, text: str) -> "AnyText":
        """Make the condition."""
        return cls(text.casefold())

    def fits(self, item: Value) -> bool:
        """Check whether the text is in an item."""
        if isinstance(item, dict):
            return any(self.fits(part) for pair in item.items() for part in pair)
        if isinstance(item, list | tuple):
            return any(map(self.fits, item))
        return not isinstance(item, bytes) and self.folded in str(item).casefold()


@dataclass(frozen=True, slots=True)
class Condition:
    """A field must have a value.

    Args:
        path: the names on the way to the field; a number is also the place in a list.
        text: the value as a person writes it: it fits a text of these characters, and what this is in JSON.
        value: the same read as JSON; the text again where it is none.
    """

    path: tuple[str, ...]
    text: str
    value: Value

    @classmethod
    def of(cls, text: str) -> "Condition":
        """Read a condition such as ``number=4711`` or ``client.name=ADA``.

        Raises:
            Refused: it has no field or no equals sign (``bad_condition``).
        """
        field, equals, wanted = text.partition("=")
        names = tuple(field.strip().split("."))
        if not equals or not all(names):
            raise Refused(
                f'"{text}" is no condition', "write it as FIELD=VALUE, such as client.number=4711", code="bad_condition"
            )
        try:
            value = cast(Value, parse_json(wanted))
        except ValueError:
            value = wanted
        return cls(names, wanted, value)

    def fits(self, item: Value) -> bool:
        """Check whether the field of an item has the value; of a list on the way one element suffices."""
        return self._fits(item, self.path)

    def _fits(self, value: Value, path: Sequence[str]) -> bool:
        if not path:
            return self._is_value(value) or (isinstance(value, list) and any(map(self._is_value, value)))
        if isinstance(value, dict):
            if path[0] in value and self._fits(value[path[0]], path[1:]):
                return True
            # A name may itself have full stops in it.
            joined = (".".join(path[:length]) for length in range(2, len(path) + 1))
            return len(path) > 1 and any(
                name in value and self._fits(value[name], path[length:]) for length, name in enumerate(joined, 2)
            )
        if isinstance(value, list):
            name, *rest = path
            if name.isdecimal() and int(name) < len(value) and self._fits(value[int(name)], rest):
                return True
            return any(self._fits(element, path) for element in value if isinstance(element, dict | list))
        return False

    def _is_value(self, value: Value) -> bool:
        if isinstance(value, str):
            return value == self.text or value == self.value
        # In Python, True and 1 are equal.
        return value == self.value and isinstance(value, bool) == isinstance(self.value, bool)
