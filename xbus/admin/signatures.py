"""Commands from functions: a parameter of the function describes its argument or option, once.

The annotation of a parameter says the kind of its value, and its default is what ``--help`` tells about it::

    @command(bot)
    def fire(bus: CommandBus, name: str = argument(BOT), reason: str = REASON) -> None:
        ...
"""

import getpass
import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, Literal, TextIO, TypeAlias, get_args, get_origin

import click

from xbus.admin.output import Form, Output
from xbus.admin.progress import show_again
from xbus.broker.journal.audit import RepairDecision, acting_person
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import Connection, reading, writing
from xbus.clock import Clock, SystemClock
from xbus.config import Config, load
from xbus.config.command_line import file_option
from xbus.ending import printable_lines

Given = Mapping[str, Any]
"""The values of the command line by the names of their parameters."""


Settings: TypeAlias = dict[str, Any]
"""What click may be told of a parameter."""

Described: TypeAlias = Any
"""A :class:`Taken` as the default of a parameter, which has the type of its value."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A parameter of a function as the command line has it.

    Args:
        params: makes the arguments and options by the name and the annotation of the parameter.
        value: makes the value of the parameter from what they were given.
    """

    params: Callable[[str, Any], Sequence[click.Parameter]]
    value: Callable[[str, Any, Given], object] = lambda name, kind, given: given[name]


class CommandBus:
    """The bus of a command: the configuration, and the journal's database, which has the schema of this program.

    Args:
        path: the configuration file; None for that of the environment.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.clock = SystemClock()

    @cached_property
    def config(self) -> Config:
        """The configuration.

        Raises:
            ConfigurationError: no file is named, or it is invalid.
        """
        return load(self.path)

    @cached_property
    def url(self) -> str:
        """The address of the database, after a check of its schema.

        Raises:
            ConfigurationError: no file is named, or it is invalid.
            SchemaError: the schema is missing, older or newer.
            JournalUnavailable: the database can't be reached.
        """
        schema.check(self.config.database.url)
        return self.config.database.url

    def check(self) -> None:
        """Let a database pass that has the schema of this program.

        Raises:
            XbusError: as :attr:`url`.
        """
        assert self.url

    def reading(self) -> AbstractContextManager[Connection]:
        """Open a short transaction that only reads."""
        return reading(self.url)

    def writing(self) -> AbstractContextManager[Connection]:
        """Open a short transaction, and commit it at the end unless an exception comes out."""
        return writing(self.url)

    def now(self) -> datetime:
        """Tell the moment, in UTC."""
        return self.clock.now()

    def decision(self, reason: str) -> RepairDecision:
        """Make the decision of the person at the keyboard, as of now."""
        return decision_of(self.clock, reason)


def decision_of(clock: Clock, reason: str) -> RepairDecision:
    """Make the decision of the person of ``acting_as``, otherwise of the one at the keyboard, as of now."""
    # Emitters read it in the errors that they get, and terminals would obey it.
    return RepairDecision(acting_person() or _user(), printable_lines(reason.strip()), clock.now())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user of a container has an id at least.
        return f"user {os.getuid()}"


def _config(name: str, kind: Any) -> Sequence[click.Parameter]:
    bearer = file_option("config_path", "The broker's configuration file.")(lambda: None)
    return list(bearer.__click_params__)  # type: ignore[attr-defined]  # click hangs them there


CONFIG = Taken(_config, lambda name, kind, given: CommandBus(given["config_path"]))


def option(text: str, kind: Any = None, *names: str, **settings: Any) -> Described:
    """Describe an option. A parameter that takes several values may have it several times.

    Args:
        text: for ``--help``.
        kind: the type of click; by default that of the annotation.
        names: its names, where it is called otherwise than its parameter.
        **settings: of click.
    """

    def params(name: str, annotation: Any) -> Sequence[click.Parameter]:
        metavar = getattr(kind, "metavar", "FILE" if _inner(annotation) is Path else None)
        chosen = {"metavar": metavar, "multiple": _is_many(annotation), **_typed(kind, annotation), **settings}
        return [click.Option([*(names or (f"--{_dashed(name)}",)), name], help=text, **chosen)]

    return Taken(params, _converted)


def argument(kind: Any = None, **settings: Any) -> Described:
    """Describe an argument. It may be left out where its annotation has None; one of several values takes all.

    Args:
        kind: the type of click; by default that of the annotation.
        **settings: of click.
    """

    def params(name: str, annotation: Any) -> Sequence[click.Parameter]:
        many = {"nargs": -1} if _is_many(annotation) else {}
        optional = {"required": False} if NoneType in get_args(annotation) else {}
        return [click.Argument([name], **{**_typed(kind, annotation), **many, **optional, **settings})]

    return Taken(params, _converted)


def shown(for_each: str = "", *, wide: bool = True, watch: bool = False) -> Described:
    """Describe ``-o`` and its alias ``--json``, for a parameter that is an :class:`~xbus.admin.output.Output`.

    Args:
        for_each: the thing for which each object of JSON is written; empty where it is one object.
        wide: whether the command writes a table, which may be wide.
        watch: whether ``--watch`` shows it again and again.
    """
    forms = [Form.WIDE.value, Form.JSON.value] if wide else [Form.JSON.value]
    objects = f"json: {f'one object for each {for_each}' if for_each else 'one object'}."
    told = f"wide: whole ids and moments, nothing cut; {objects}" if wide else objects
    watching = [click.Option(["--watch"], is_flag=True, help="Show it anew every 2 seconds, until you press Ctrl-C.")]
    options = [
        *(watching if watch else ()),
        click.Option(["-o", "--output", "form"], type=click.Choice(forms), help=told),
        click.Option(["--json", "as_json"], is_flag=True, help="The same as -o json."),
    ]

    def value(name: str, kind: Any, given: Given) -> Output:
        return Output.of(Form.JSON if given["as_json"] else Form(given["form"] or Form.USUAL))

    return Taken(lambda name, kind: options, value)


def _dashed(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _inner(annotation: object) -> object:
    """Give the kind of one value of a parameter: without None, and of several values that of each."""
    kinds = [each for each in get_args(annotation) if each not in (NoneType, ...)]
    return annotation if get_origin(annotation) is Literal or not kinds else kinds[0]


def _is_many(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, Sequence)


OWN_TYPES: Mapping[object, Any] = {
    Path: click.Path(path_type=Path),
    BinaryIO: click.File("rb"),
    TextIO: click.File(),
    int: click.INT,
}


def _typed(kind: Any, annotation: object) -> Settings:
    """Give the type of a parameter, in the words of click."""
    if annotation is bool:
        return {"is_flag": True}
    inner = _inner(annotation)
    if kind is not None:
        return {"type": kind}
    if get_origin(inner) is Literal:
        return {"type": click.Choice(get_args(inner))}
    if inspect.isclass(inner) and issubclass(inner, Enum):
        return {"type": click.Choice([each.value for each in inner])}
    return {"type": OWN_TYPES.get(inner)}


def _converted(name: str, annotation: Any, given: Given) -> object:
    """Give a value as the annotation has it: click takes the names of states as texts."""
    value, kind = given[name], _inner(annotation)
    return kind(value) if isinstance(value, str) and inspect.isclass(kind) and issubclass(kind, Enum) else value


def command(
    group: click.Group | None = None,
    name: str | None = None,
    kind: type[click.Command] = click.Command,
    **settings: Any,
) -> Callable[[Callable[..., object]], click.Command]:
    """Make a command of a function, whose docstring is its help.

    Args:
        group: the group that gets it.
        name: of the command; by default that of the function.
        kind: the class of the command.
        **settings: of the command.
    """

    def make(function: Callable[..., object]) -> click.Command:
        parameters = inspect.signature(function, eval_str=True).parameters
        taken = {
            each.name: (CONFIG if each.annotation is CommandBus else each.default, each.annotation)
            for each in parameters.values()
        }

        def call(**given: Any) -> object:
            def run() -> object:
                return function(
                    **{name: how.value(name, annotation, given) for name, (how, annotation) in taken.items()}
                )

            if given.pop("watch", False):
                _watch(run, given)
                return None
            return run()

        made = kind(
            name or _dashed(function.__name__),
            callback=call,
            params=[param for name, (how, annotation) in taken.items() for param in how.params(name, annotation)],
            help=inspect.getdoc(function),
            **settings,
        )
        if group is not None:
            group.add_command(made)
        return made

    return make


def _watch(show: Callable[[], object], given: Given) -> None:
    if given["as_json"] or given["form"] == Form.JSON or not sys.stdout.isatty():
        raise click.UsageError("--watch is for people at a terminal: it goes with no JSON, and into no pipe")
    show_again(show, sys.stdout, time.sleep)


def _not_blank(_: click.Context, __: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("say why")
    return text


REASON = option("Why; it is kept.", required=True, callback=_not_blank)
OPTIONAL_REASON = option("Why; it is kept.", default="")
YES = option("Don't ask.")
SHOW_SECRETS = option("Show the fields, too, that the event type calls secret.")
LIMIT = option("How many at the most.", click.IntRange(1, 1000), default=20, show_default=True)
