"""From the text of a field to the value that is sent for it. Pure.

The values are those that xbus.file_emitter 0.1.2 sends with pyjon.descriptors 1.7.7: what is blank is None, a date is
a text, a decimal is a float.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias

from xbus.json_text import exact_float

SMALLEST_INT, LARGEST_INT = -(2**63), 2**64 - 1
"""The whole numbers that msgpack can write."""


_WHOLE = re.compile(r"[+-]?[0-9]+")
"""A whole number. Python's own reader takes digits of any script, and underscores between them."""

_MOST_DIGITS = 1_000
"""Digits of a number that is read at all. More cost time, and are too large with hardly an exception."""


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
    plain = text.strip()
    if not _WHOLE.fullmatch(plain):
        raise Misfit(f"{text!r} is no whole number", is_lenient=True)
    if len(plain) > _MOST_DIGITS:
        raise Misfit(f"{text!r:.80} is a number of more than 64 bits")
    number = int(plain)
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

    A number that does not fit exactly is refused, as its amount would be read 10 to 1000 times too large. Thousands are
    in groups of three, and the first group does not begin with 0. Digits are those of ASCII.

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
        found = self._form.fullmatch(text.strip())
        if found is None:
            raise Misfit(f"{text!r:.80} is no decimal number{self._as_written}")
        sign, whole, decimals, exponent = found.group("sign", "whole", "decimals", "exponent")
        if self.places is None:
            whole = whole.replace(self.thousands, "") if self.thousands else whole
        else:
            whole = whole.zfill(self.places)
            whole, decimals = whole[: -self.places], whole[-self.places :]
        try:
            return exact_float(f"{sign or ''}{whole or '0'}.{decimals or '0'}{exponent or ''}")
        except ValueError as error:
            raise Misfit(f"{text!r:.80} is no decimal number that a float holds: {error}") from error

    @cached_property
    def _form(self) -> re.Pattern[str]:
        sign = "(?P<sign>[+-]?)"
        if self.places is not None:
            return re.compile(f"{sign}(?P<whole>[0-9]+)(?P<decimals>)(?P<exponent>)")
        whole = "[0-9]*"
        if self.thousands:
            whole = f"[1-9][0-9]{{0,2}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|{whole}"
        # Where both delimiters are the same, only thousands are meant.
        point = re.escape(self.point) if self.point != self.thousands else "(?!)"
        number = rf"(?=[0-9]|{point}[0-9])(?P<whole>{whole})(?:{point}(?P<decimals>[0-9]*))?"
        return re.compile(f"{sign}{number}(?P<exponent>[eE][+-]?[0-9]+)?")

    @property
    def _as_written(self) -> str:
        """The delimiters, for people."""
        if self.places is not None:
            return f" of digits alone, of which the last {self.places} are decimals"
        thousands = f"with {self.thousands!r} between groups of three digits" if self.thousands else "without groups"
        return f" {thousands} and {self.point!r} before the decimals"
