"""Names of the bus as arguments of commands; a shell completes them from the bus itself."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.people import Right, list_persons
from xbus.config import load
from xbus.errors import XbusError

KINDS = {
    "role": Section.ROLE,
    "service": Section.SERVICE,
    "type": Section.EVENT_TYPE,
    "emitter": Section.EMITTER,
    "bot": Section.BOT,
    "reader": Section.READER,
    "subscription": Section.SUBSCRIPTION,
}
"""The sections of the names, by the word for their kind on the command line."""


class PersonName(click.ParamType[str]):
    """The name of a person, known or not: a command looks it up by itself."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with reading(load(ctx.params.get("config_path")).database.url) as connection:
                people = list_persons(connection)
        except XbusError:
            return []
        return _offered([each.name for each in people], incomplete)


class RightName(click.ParamType[Right]):
    """The name of a right."""

    name = "right"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Right:
        try:
            return Right(str(value))
        except ValueError:
            self.fail(f"{value!r} is not one of the rights {', '.join(Right)}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(each.value) for each in Right if each.startswith(incomplete)]


class Name(click.ParamType[str]):
    """A name of the bus, in use or not: a command looks it up by itself.

    Args:
        sections: those that it is of; none where the argument ``kind`` before it tells.
    """

    name = "name"

    def __init__(self, *sections: Section) -> None:
        self._sections = sections

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        of_kind = KINDS.get(ctx.params.get("kind", ""))
        sections = self._sections or (() if of_kind is None else (of_kind,))
        names = _names(ctx.params.get("config_path"), sections)
        return _offered(sorted(names), incomplete)


def _offered(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Offer names that begin so. Shells take them line by line, so none may have a control character in it."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def _names(config_path: Path | None, sections: Collection[Section]) -> Collection[str]:
    if not sections:
        return ()
    try:
        with reading(load(config_path).database.url) as connection:
            in_use = read_stored(connection).in_use
            return {name for section in sections for name in in_use.section(section)}
    except XbusError:
        # The person is still typing: the command itself says what is wrong.
        return ()


ROLE, SERVICE, READER, TYPE, EMITTER, BOT, SUBSCRIPTION = map(
    Name,
    (
        Section.ROLE,
        Section.SERVICE,
        Section.READER,
        Section.EVENT_TYPE,
        Section.EMITTER,
        Section.BOT,
        Section.SUBSCRIPTION,
    ),
)
READER_OR_ROLE = Name(Section.ROLE, Section.READER, Section.SUBSCRIPTION)
OF_KIND = Name()
PERSON = PersonName()
RIGHT = RightName()
