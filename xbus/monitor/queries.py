"""The filters of lists in addresses of pages and of the REST interface, read as commands read their options."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, TypeVar

import click
from fastapi import Path, Query
from pydantic import BaseModel, Field

from xbus.admin.arguments import Moment
from xbus.admin.program import EnvelopeId
from xbus.admin.search import Condition, Fit, Search, any_text
from xbus.errors import Refused

T = TypeVar("T")

UNSTORABLE = re.compile("[\\0\\ud800-\\udfff]")


def moment_of(text: str | None) -> datetime | None:
    """Read a moment: an age such as ``2d`` or ``30min``, a date or a time; None for nothing.

    Raises:
        Refused: it is none of these (``bad_moment``).
    """
    return read_by(Moment(), text, "bad_moment") if text else None


def digits_of(text: str) -> str:
    """Read the id of an envelope, or its first digits.

    Raises:
        Refused: it is neither (``bad_id``).
    """
    return read_by(EnvelopeId(), text, "bad_id")


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


def read_by(kind: click.ParamType[T], text: str, code: str) -> T:
    """Read a text as a command reads its option.

    Raises:
        Refused: it can't be read, with this code.
    """
    try:
        return kind.convert(text, None, None)
    except click.BadParameter as error:
        raise Refused(error.message, "correct it", code=code) from error


Name = Annotated[str, Field(max_length=255)]
Text = Annotated[str, Field(max_length=1000)]

Before = Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only those below this id.")]

ItemId = Annotated[int, Path(ge=-(2**63), le=2**63 - 1)]

SEARCHED_ITEMS = 10_000
"""Items that one request looks into. More take longer than a page may; the next request goes on behind them."""

SEARCHED_EVENTS = 1_000

SEARCHED_BYTES = 16 * 1024 * 1024


class ClearingQuery(BaseModel):
    """Selects items that consumers keep for a person; an empty type selects all."""

    state: Literal["new", "old", "cleared", "all"] = "new"
    type: Annotated[Name, Field(description="Only of the consumer that answers requests of this type.")] = ""
    before: Annotated[int | None, Field(ge=1, le=2**63 - 1, description="Only items below this id.")] = None

    @property
    def wanted_state(self) -> str | None:
        """The state in the consumers' words; None for all."""
        return None if self.state == "all" else self.state


class ItemQuery(BaseModel):
    """Selects items of a type by what is in them: FIELD=VALUE, several with spaces between, or any text."""

    type: Name = ""
    text: Annotated[
        Text, Field(description="A text that is in the item; or conditions, such as client.number=4711.")
    ] = ""
    since: Annotated[str, Field(max_length=64, description="2d, 12h, 30min (ago), a date or a time.")] = ""
    below: Annotated[int | None, Field(ge=1, le=2**53, description="Only items below this position.")] = None

    def search(self) -> Search:
        """Make the search.

        Raises:
            Refused: the moment can't be read (``bad_moment``).
        """
        return Search(
            self.type,
            self._conditions(),
            moment_of(self.since),
            self.below,
            most_items=SEARCHED_ITEMS,
            most_bytes=SEARCHED_BYTES,
            most_events=SEARCHED_EVENTS,
        )

    def _conditions(self) -> list[Fit]:
        words = self.text.split()
        if words and all("=" in word.strip("=") for word in words):
            return [Condition.of(word).fits for word in words]
        return [any_text(self.text.strip())] if words else []
