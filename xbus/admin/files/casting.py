"""From the text of a field to the value that is sent for it. Pure.

The values are those that xbus.file_emitter 0.1.2 sends with pyjon.descriptors 1.7.7: what is blank is None, a date is
a text, a decimal is a float.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

SMALLEST_INT, LARGEST_INT = -(2**63), 2**64 - 1
"""The whole numbers that msgpack can write."""


class Misfit(Exception):
    """A text that is not what its field must hold.

    Args:
        reason: the fault, to follow the field's name.
        is_lenient: a field that is neither mandatory nor strict sends None for it.
    """

    def __init__(self, reason: str, *, is_lenient: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_lenient = is_lenient


Cast: TypeAlias = Callable[[str], Any]
"""Makes the value of a text that is not blank; raises Misfit."""


def cast_string(text: str) -> str:
    """Take the text itself."""
    return text


def cast_int(text: str) -> int:
    """Read a whole number.

    Raises:
        Misfit: the text is not a whole number, or one that msgpack can't write.
    """
    try:
        number = int(text.strip())
    except ValueError as error:
        raise Misfit(f"{text!r} is no whole number", is_lenient=True) from error
    if not SMALLEST_INT <= number <= LARGEST_INT:
        raise Misfit(f"{text!r} is a number of more than 64 bits")
    return number


@dataclass(frozen=True)
class DateCast:
    """A date, sent as year, month and day joined by hyphens.

    Args:
        format: how it is written, for ``strptime``.
    """

    format: str

    def __call__(self, text: str) -> str:
        try:
            date = datetime.strptime(text, self.format)  # noqa: DTZ007 - only its day is wanted
        except ValueError as error:
            raise Misfit(f"{text!r} is no date like {self.format}", is_lenient=True) from error
        # As strftime of the C library: it writes the year 1 as "1".
        return f"{date.year}-{date.month:02}-{date.day:02}"


@dataclass(frozen=True)
class DecimalCast:
    """Reads a decimal number, to be sent as a float.

    Args:
        places: so many of its last digits are decimals; None if the text has a point. With it the delimiters mean
            nothing.
        thousands: the delimiter of thousands, "" for none.
        point: the delimiter before the decimals.
    """

    places: int | None = None
    thousands: str = ""
    point: str = "."

    def __call__(self, text: str) -> float:
        plain = self._delimited(text) if self.places is None else self._implied(text, self.places)
        try:
            number = float(Decimal(plain.strip()))
        except (InvalidOperation, ValueError) as error:
            raise Misfit(f"{text!r} is no decimal number") from error
        if not math.isfinite(number):
            raise Misfit(f"{text!r} is no decimal number, or too large for a float")
        return number

    def _delimited(self, text: str) -> str:
        plain = text.replace(self.thousands, "") if self.thousands else text
        return plain.replace(self.point, ".")

    def _implied(self, text: str, places: int) -> str:
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        digits = digits.zfill(places)
        return f"{sign}{digits[:-places]}.{digits[-places:]}"
