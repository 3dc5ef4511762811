"""Commands from functions and actions: a parameter or field describes its argument or option, once.

The annotation says the kind of its value, and its default is what ``--help`` tells about it::

    @command(bot)
    def fire(bus: CommandBus, name: str = argument(BOT), reason: str = REASON) -> None:
        ...
"""

import getpass
import inspect
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    ClassVar,
    Literal,
    NewType,
    TextIO,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from xbus.admin.output import Form, Output
from xbus.clock import Clock, SystemClock
from xbus.config import Config, load
from xbus.config.command_line import file_option
from xbus.ending import printable, printable_lines
from xbus.rights import Right

if TYPE_CHECKING:
    from xbus.broker.journal.audit import RepairDecision
    from xbus.broker.journal.database.connection import Connection

T = TypeVar("T")

Given = Mapping[str, Any]
"""The values of the command line by the names of their parameters."""


Settings: TypeAlias = dict[str, Any]
"""The settings of a parameter, as click takes them."""

SecretText = NewType("SecretText", str)
"""A secret exactly as somebody typed it."""

Described: TypeAlias = Any
"""A :class:`Taken` as the default of a parameter, which has the type of its value."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A parameter of a function as the command line has it.

    Args:
        params: makes the arguments and options by the name and the annotation of the parameter.
        value: makes the value of the parameter from what they were given.
        title: stands above its place in a form; empty where no form asks for it.
        about: stands below that place.
        longest: the most characters of a text that comes by a form or an address; 0 for as many as usual there.
        asked: ``text`` or ``file`` for a text of several lines, in a file with its blanks at the ends.
        is_required: whether a form asks for a value, where the command line has none.
        is_local: whether the command line alone has it, and neither pages nor programs.
    """

    params: Callable[[str, Any], Sequence[click.Parameter]]
    value: Callable[[str, Any, Given], object] = lambda name, kind, given: given[name]
    title: str = ""
    about: str = ""
    longest: int = 0
    asked: str = ""
    is_required: bool = False
    is_local: bool = False


Field: TypeAlias = tuple[Taken, Any]
"""A parameter of a command, or a field of an action: how it is taken, and its annotation."""


class CommandBus:
    """The bus as one sees it who acts: its configuration, and the database, which has the schema of this program.

    Here that is a person at the keyboard. The monitor has one for each of its visitors. The journal is imported when a
    command asks for it: others, such as ``xbus health``, start without it, and without its libraries.

    Args:
        path: the configuration file; None for that of the environment.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.clock: Clock = SystemClock()

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
        from xbus.broker.journal.database import schema

        schema.check(self.config.database.url)
        return self.config.database.url

    def check(self) -> None:
        """Let a database pass that has the schema of this program.

        Raises:
            XbusError: as :attr:`url`.
        """
        _ = self.url

    def reading(self) -> AbstractContextManager["Connection"]:
        """Open a short transaction that only reads."""
        from xbus.broker.journal.database.connection import reading

        return reading(self.url)

    def writing(self) -> AbstractContextManager["Connection"]:
        """Open a short transaction, and commit it at the end unless an exception comes out."""
        from xbus.broker.journal.database.connection import writing

        return writing(self.url)

    def read(self, ask: Callable[["Connection"], T]) -> T:
        """Give the answer to one question."""
        with self.reading() as connection:
            return ask(connection)

    def now(self) -> datetime:
        """Tell the moment, in UTC."""
        return self.clock.now()

    def acting(self) -> AbstractContextManager[None]:
        """Have the audit name the person who acts."""
        return nullcontext()

    def hash_password(self, password: str) -> str:
        """Make the hash of a password."""
        from xbus.passwords import Passwords

        return Passwords().hash_password(password)

    def check_right(self, right: Right) -> None:
        """Let somebody pass who has a right: at the keyboard everybody, as the configuration file gives all of them.

        Raises:
            Refused: the person lacks it (``forbidden``).
        """

    def decision(self, reason: str) -> "RepairDecision":
        """Make the decision of the person who acts, as of now."""
        return decision_of(self.clock, reason)


def decision_of(clock: Clock, reason: str) -> "RepairDecision":
    """Make the decision of the person of ``acting_as``, otherwise of the one at the keyboard, as of now."""
    from xbus.broker.journal.audit import RepairDecision, acting_person

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


def option(
    text: str,
    kind: Any = None,
    *names: str,
    title: str = "",
    longest: int = 0,
    asked: str = "",
    is_local: bool = False,
    **settings: Any,
) -> Described:
    """Describe an option. A parameter that takes several values may have it several times.

    Args:
        text: for ``--help``.
        kind: the type of click; by default that of the annotation.
        names: its names, where it is called otherwise than its parameter.
        title: as :class:`Taken` has it, as the next ones.
        **settings: of click.
    """

    def params(name: str, annotation: Any) -> Sequence[click.Parameter]:
        metavar = getattr(kind, "metavar", "FILE" if inner_of(annotation) is Path else None)
        chosen = {"metavar": metavar, "multiple": is_many(annotation), **_typed(kind, annotation), **settings}
        return [click.Option([*(names or (f"--{_dashed(name)}",)), name], help=text, **chosen)]

    return Taken(params, _converted, title, text, longest, asked, is_local=is_local)


def argument(kind: Any = None, *, title: str = "", about: str = "", longest: int = 0, **settings: Any) -> Described:
    """Describe an argument. It may be left out where its annotation has None; one of several values takes all.

    Args:
        kind: the type of click; by default that of the annotation.
        title: as :class:`Taken` has it, as the next ones.
        **settings: of click.
    """

    def params(name: str, annotation: Any) -> Sequence[click.Parameter]:
        many = {"nargs": -1} if is_many(annotation) else {}
        optional = {"required": False} if NoneType in get_args(annotation) else {}
        return [click.Argument([name], **{**_typed(kind, annotation), **many, **optional, **settings})]

    return Taken(params, _converted, title, about, longest)


def typed(title: str, about: str = "", *, asked: str = "", longest: int = 0, is_required: bool = True) -> Described:
    """Describe a field of an action that only a form has.

    Args:
        title: as :class:`Taken` has it, as the others.
    """
    return Taken(lambda name, kind: (), lambda name, kind, given: None, title, about, longest, asked, is_required)


LINKED: Described = Taken(lambda name, kind: (), lambda name, kind, given: None)
"""A field of an action that only a link to its form gives."""


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


def inner_of(annotation: object) -> object:
    """Give the kind of one value of a parameter: without None, and of several values that of each."""
    kinds = [each for each in get_args(annotation) if each not in (NoneType, ...)]
    return annotation if get_origin(annotation) is Literal or not kinds else kinds[0]


def is_many(annotation: object) -> bool:
    """Check whether a parameter takes several values."""
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
    inner = inner_of(annotation)
    if kind is not None:
        return {"type": kind}
    if get_origin(inner) is Literal:
        return {"type": click.Choice(get_args(inner))}
    if inspect.isclass(inner) and issubclass(inner, Enum):
        return {"type": click.Choice([each.value for each in inner])}
    return {"type": OWN_TYPES.get(inner)}


def _converted(name: str, annotation: Any, given: Given) -> object:
    """Give a value as the annotation has it: click takes the names of states as texts."""
    value, kind = given[name], inner_of(annotation)
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
        return _added(group, kind(**_parts(name or function.__name__, function, _taken_by(function)), **settings))

    return make


def _taken_by(function: Callable[..., object]) -> Mapping[str, Field]:
    parameters = inspect.signature(function, eval_str=True).parameters
    return {each.name: (each.default, each.annotation) for each in parameters.values()}


def asked_by(command: click.Command) -> tuple[Callable[..., object], Mapping[str, Field]]:
    """Give the function that a command was made of, and its parameters."""
    assert command.callback is not None, "commands are made of functions"
    function = inspect.unwrap(command.callback)
    return function, _taken_by(function)


def _parts(name: str, function: Callable[..., object], taken: Mapping[str, Field]) -> Settings:
    """Give the parts of a command that calls a function with what its parameters take."""
    hows = {each: (CONFIG if of is CommandBus else how, of) for each, (how, of) in taken.items()}

    def call(**given: Any) -> object:
        def run() -> object:
            return function(**{each: how.value(each, of, given) for each, (how, of) in hows.items()})

        if given.pop("watch", False):
            _watch(run, given)
            return None
        return run()

    return {
        "name": _dashed(name),
        "callback": update_wrapper(call, function),
        "params": [param for each, (how, of) in hows.items() for param in how.params(each, of)],
        "help": inspect.getdoc(function),
    }


def _added(group: click.Group | None, made: click.Command) -> click.Command:
    if group is not None:
        group.add_command(made)
    return made


def _watch(show: Callable[[], object], given: Given) -> None:
    if given["as_json"] or given["form"] == Form.JSON or not sys.stdout.isatty():
        raise click.UsageError("--watch is for people at a terminal: it goes with no JSON, and into no pipe")
    from xbus.admin.progress import show_again

    show_again(show, sys.stdout, time.sleep)


YES = option("Don't ask.")


UNSAID = "…"
"""Stands in a preview for what the person is still to say."""


class BusAction(ABC):
    """A thing that a person may do, by a command and in the monitor.

    Its annotated attributes that are :data:`Described` are its fields: arguments and options of the command, and fields
    of the form. The form asks for those with a title; the others come with the link to the form.

    Args:
        **given: the fields; one that is not named is None.

    Raises:
        ValueError: they don't go together.
    """

    path: ClassVar[str]
    """Its place below ``/do`` and ``/api``."""

    title: ClassVar[str]
    """Its name as an order: ``Resume``."""

    words: ClassVar[str]
    """The command: ``bot fire``."""

    right: ClassVar[Right] = Right.MANAGER
    """The right that a visitor of the monitor needs for it. An action that names none is nobody else's."""

    is_final: ClassVar[bool] = False
    """True if nobody can take the action back."""

    question: ClassVar[str] = ""
    """The question that the command asks when it has shown the plan, with ``{field}``; empty where it does not ask."""

    has_dry_run: ClassVar[bool] = False
    """True if the command may show the plan alone; such a one asks."""

    def __init__(self, **given: Any) -> None:
        for name in self.fields():
            setattr(self, name, given.get(name))
        self.check()

    @classmethod
    @cache
    def fields(cls) -> Mapping[str, Field]:
        """Give the fields by their names."""
        hints = get_type_hints(cls)
        return {name: (how, hints[name]) for name in hints if isinstance(how := getattr(cls, name, None), Taken)}

    def check(self) -> None:
        """Let fields pass that go together.

        Raises:
            ValueError: they don't.
        """
        return

    def command(self) -> list[str]:
        """Give the words of the command; empty fields have none."""
        found = ["xbus", *self.words.split()]
        for name, (how, kind) in self.fields().items():
            value = getattr(self, name)
            for param in how.params(name, kind):
                option = [param.opts[0]] if isinstance(param, click.Option) else []
                if value is True:
                    found += option
                elif value not in (None, "", False):
                    found += [word for one in _each(value) for word in (*option, str(one))]
        return found

    def typed(self, bus: CommandBus) -> Mapping[str, str]:
        """Give the text that stands in fields of the form before a person types, by their names."""
        return {}

    @abstractmethod
    def preview(self, bus: CommandBus) -> Iterable[str]:
        """Say in sentences what it would do; what a form still asks for is :data:`UNSAID`.

        Raises:
            Refused: it can't be done.
        """

    def plan(self, bus: CommandBus) -> Iterable[str]:
        """Say what the command shows before its question.

        Raises:
            Refused: it can't be done.
        """
        return self.preview(bus)

    def answer(self, done: Sequence[str]) -> Iterable[str]:
        """Choose what the command says of the sentences about what was done."""
        return done

    @abstractmethod
    def carry_out(self, bus: CommandBus) -> Iterable[str]:
        """Do it, and say in sentences what was done.

        Raises:
            Refused: it can't be done any more; nothing was.
        """


def confirm(question: str, *, unless: bool = False) -> None:
    """Ask a person, and go on only after a yes.

    Args:
        unless: whether the command line has said yes already.

    Raises:
        click.Abort: the answer is no, or the person has interrupted the command.
        click.UsageError: nobody can be asked.
    """
    if unless:
        return
    try:
        click.confirm(question, abort=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            raise click.UsageError("nobody answers the question; give --yes") from abort
        raise


def _each(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def carry_out(
    bus: CommandBus, action: type[BusAction], *, yes: bool = False, dry_run: bool = False, **given: Any
) -> None:
    """Carry an action out for a person at the keyboard, who sees the plan first where the action asks.

    Args:
        yes: whether the command line has said yes already.
        dry_run: whether to show the plan alone.
        **given: the fields.
    """
    try:
        act = action(**given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if action.question:
        _tell(act.plan(bus))
        if dry_run:
            return
        confirm(action.question.format(**given), unless=yes)
    done = list(act.carry_out(bus))
    _tell(act.answer(done))


def command_of(
    action: type[BusAction], group: click.Group | None = None, kind: type[click.Command] = click.Command
) -> click.Command:
    """Make the command of an action, whose docstring is its help.

    Args:
        group: the group that gets it.
        kind: the class of the command.
    """

    def run(bus: CommandBus, yes: bool = False, dry_run: bool = False, **given: Any) -> None:
        carry_out(bus, action, yes=yes, dry_run=dry_run, **given)

    run.__doc__ = action.__doc__
    taken: dict[str, Field] = {"bus": (CONFIG, CommandBus), **action.fields()}
    if action.has_dry_run:
        taken["dry_run"] = (option("Show what would be done, and do nothing."), bool)
    if action.question:
        taken["yes"] = (YES, bool)
    return _added(group, kind(**_parts(action.words.split()[-1], run, taken)))


def _tell(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(printable(sentence))
