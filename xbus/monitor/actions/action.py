"""The base of all actions, and the fields of which they consist."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Secret, StringConstraints, model_validator

from xbus.broker.journal.people import Right
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor
from xbus.monitor.reading import check_texts

UNSAID = "…"
"""Stands in the preview for what the person is still to say."""

ASKED = "asked"


def asked(
    how: str, title: str, description: str | None = None, *, choices: Sequence[str] = (), **limits: Any
) -> object:
    """Have a form ask for a field.

    Args:
        how: ``line``, ``text``, ``check``, ``choice``, ``several`` (values with spaces between) or ``password``.
        title: above its place in the form.
        description: below it.
        choices: all that may be chosen.
        **limits: of pydantic's ``Field``.
    """
    shown: dict[str, Any] = {ASKED: how, "choices": [*choices]} if choices else {ASKED: how}
    return Field(title=title, description=description, json_schema_extra=shown, **limits)


Reason: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=4000), asked("line", "Reason", "Why; it is kept.")
]
"""A reason that a person must give."""

OptionalReason: TypeAlias = Annotated[str, asked("line", "Reason", "Why; it is kept.", max_length=4000)]
"""A reason that a person may give."""

TypedSecret: TypeAlias = Secret[
    Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=1024)]
]
"""A secret exactly as it was typed: a blank at its end belongs to it."""


class Action(BaseModel, ABC):
    """A thing that a person may do, with all that it needs to be done.

    The form asks a person for the fields that are :func:`asked`; the others come with the link to the form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    path: ClassVar[str]
    """Its place below ``/do`` and ``/api``."""

    title: ClassVar[str]
    """Its name as an order: ``Resume``."""

    right: ClassVar[Right]
    """The right that a person needs for it."""

    is_final: ClassVar[bool] = False
    """True if nobody can take the action back."""

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: object) -> object:
        """Take fields that a form leaves empty as not given, and refuse texts that no database takes."""
        if not isinstance(given, dict):
            return given
        check_texts(given.values())
        return {name: value for name, value in given.items() if value != ""}

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Give the words of the ``xbus`` command that does the same."""

    def typed(self, bus: BusAccess) -> Mapping[str, str]:
        """Give the text that stands in fields of the form before a person types, by their names.

        Raises:
            Refused: it can't be done by a form.
        """
        return {}

    @abstractmethod
    def preview(self, bus: BusAccess) -> Iterable[str]:
        """Say in sentences what it would do; what a form still asks for is :data:`UNSAID`.

        Raises:
            Refused: it can't be done.
        """

    @abstractmethod
    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterable[str]:
        """Do it, and say in sentences what was done.

        Raises:
            Refused: it can't be done any more; nothing was.
        """


@dataclass(frozen=True, slots=True)
class AskedField:
    """A field of a form.

    Args:
        kind: the way in which it is asked.
        choices: the values among which a person chooses.
    """

    name: str
    title: str
    description: str
    kind: str
    value: str
    is_required: bool
    choices: Sequence[str] = ()


def asked_fields(kind: type[Action], given: Mapping[str, str]) -> list[AskedField]:
    """Find the fields of an action that its form asks for.

    Args:
        given: values that stand in the form already.
    """
    return [
        AskedField(
            name,
            field.title or name,
            field.description or "",
            str(how[ASKED]),
            given.get(name, ""),
            field.is_required(),
            _choices(how),
        )
        for name, field in kind.model_fields.items()
        if isinstance(how := field.json_schema_extra, dict) and ASKED in how
    ]


def _choices(how: Mapping[str, object]) -> list[str]:
    choices = how.get("choices")
    return [str(each) for each in choices] if isinstance(choices, list) else []
