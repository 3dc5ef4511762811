"""Reads what persons and programs write in addresses and forms, as the commands read their options; pure."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

import click

from xbus.admin.moments import Moment, Until
from xbus.admin.program import EnvelopeId
from xbus.errors import Refused

T = TypeVar("T")

UNSTORABLE = re.compile("[\\0\\ud800-\\udfff]")


def moment_of(text: str | None) -> datetime | None:
    """Read a moment: an age such as ``2d`` or ``30min``, a date or a time; None for nothing.

    Raises:
        Refused: it is none of these (``bad_moment``).
    """
    return _read(Moment(), text, "bad_moment") if text else None


def until_of(text: str | None) -> datetime | None:
    """Read a moment to come: ``2h`` from now, a date or a time; None for nothing.

    Raises:
        Refused: it is none of these, or over (``bad_moment``).
    """
    return _read(Until(), text, "bad_moment") if text else None


def digits_of(text: str) -> str:
    """Read the id of an envelope, or its first digits.

    Raises:
        Refused: it is neither (``bad_id``).
    """
    return _read(EnvelopeId(), text, "bad_id")


def are_digits(text: str) -> bool:
    """Check whether a text can be the id of an envelope, or its first digits."""
    try:
        digits_of(text)
    except Refused:
        return False
    return True


def check_texts(values: Iterable[object]) -> None:
    """Let values pass whose texts any database takes, also those in lists.

    Raises:
        ValueError: one has a zero character, or half of a pair of surrogates.
    """
    for value in values:
        if isinstance(value, list):
            check_texts(value)
        elif isinstance(value, str) and UNSTORABLE.search(value):
            raise ValueError("a text has a character that can't be stored")


def _read(kind: click.ParamType[T], text: str, code: str) -> T:
    try:
        return kind.convert(text, None, None)
    except click.BadParameter as error:
        raise Refused(error.message, "correct it", code=code) from error
