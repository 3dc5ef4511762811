"""Arguments and options that several commands have: moments, places of the log, and names, which a shell completes.

The names come from the bus itself.
"""

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from xbus.admin.signatures import option
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.slices.listing import Start, parse_start
from xbus.broker.journal.log.slices.values import BadPlace
from xbus.broker.journal.people import list_persons
from xbus.clock import SystemClock
from xbus.config import load
from xbus.errors import XbusError
from xbus.rights import Right

_AGO = re.compile(r"(\d+(?:\.\d+)?)(min|h|d|w)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d|w)")
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A moment: an age such as ``90d`` or ``30min``, or a date or time in ISO 8601, by default in UTC."""

    name = "moment"
    metavar = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(value):
            try:
                return SystemClock().now() - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
            except OverflowError:
                self.fail(f"{value} is longer ago than time goes back", param, ctx)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value} is neither like 90d, 12h or 30min nor a date or time like 2026-01-31", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Duration(click.ParamType[float]):
    """A time such as ``30s``, ``5min`` or ``2h``; the command gets seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(value)
        if found is None:
            self.fail(f"{value} is not like 30s, 5min or 2h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


class Until(Moment):
    """A moment to come: ``2h`` from now, or a date or time in ISO 8601, by default in UTC."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        now = SystemClock().now()
        if ahead := _AGO.fullmatch(value):
            try:
                moment = now + timedelta(**{_UNITS[ahead[2]]: float(ahead[1])})
            except OverflowError:
                self.fail(f"{value} is further ahead than time goes", param, ctx)
        else:
            moment = super().convert(value, param, ctx)
        if moment <= now:
            self.fail(f"{value} is over", param, ctx)
        return moment


class PlaceOption(click.ParamType[datetime | int]):
    """A place in the log: a position, ``oldest``, or a :class:`Moment`, also with a minus before its age."""

    name = "place"
    metavar = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | int:
        if isinstance(value, int):
            return value
        if value == "oldest":
            return 1
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= LONGEST_POSITION:
            return int(value)
        return Moment().convert(value.removeprefix("-") if isinstance(value, str) else value, param, ctx)


class LogStart(click.ParamType[Start]):
    """A start in the log: a place as ``1234:0:500``, ``oldest``, ``head``, or a :class:`Moment` as ``-1h``."""

    name = "start"
    metavar = "WHEN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if not isinstance(value, str):
            return cast(Start, value)
        age = value.removeprefix("-")
        if _AGO.fullmatch(age):
            return Moment().convert(age, param, ctx)
        try:
            return parse_start(value)
        except BadPlace as error:
            self.fail(str(error), param, ctx)


LONGEST_POSITION = 18
"""Digits; what the database's columns take."""


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
        self.metavar = "LOGIN" if sections and {*sections} & {Section.ROLE, Section.EMITTER} else "NAME"

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


MOMENT, UNTIL, PLACE, LOG_START = Moment(), Until(), PlaceOption(), LogStart()
ROLE, SERVICE, TYPE, EMITTER, BOT, READER, SUBSCRIPTION = map(Name, KINDS.values())
READER_OR_ROLE = Name(Section.ROLE, Section.READER, Section.SUBSCRIPTION)
OF_KIND = Name()
PERSON = PersonName()
RIGHT = RightName()


def _not_blank(_: click.Context, __: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("say why")
    return text


REASON = option("Why; it is kept.", required=True, callback=_not_blank, title="Reason")
OPTIONAL_REASON = option("Why; it is kept.", default="", title="Reason")
SHOW_SECRETS = option("Show the fields, too, that the event type calls secret.", is_local=True)
LIMIT = option("How many at the most.", click.IntRange(1, 1000), default=20, show_default=True)
