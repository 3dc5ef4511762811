"""``xbus recipient`` runs a recipient in one process or several, shows the roles, and takes them off the bus."""

import importlib
import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import cast

import click

from xbus import logs
from xbus.admin.address import CommandLogin, way_to
from xbus.admin.arguments import REASON, ROLE
from xbus.admin.bus_file.fields import MOST_INSTANCES
from xbus.admin.objects import of_role, progress_of
from xbus.admin.output import STATE, Column, Output, Row, age, counted, name_column
from xbus.admin.program import CommandGroup, FiniteRange
from xbus.admin.repair.moves import told
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, option, shown
from xbus.broker.journal.configuration import detaching
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.writes import PresenceWork
from xbus.config import load_or_default
from xbus.errors import ConfigurationError
from xbus.recipient import Recipient, run
from xbus.recipient.running import ServeOptions
from xbus.rights import Right


def load_recipient(name: str) -> type[Recipient]:
    """Import the class that ``module:Class`` names.

    Raises:
        ConfigurationError: the module or the class does not exist, or it is no recipient.
    """
    module_name, separator, class_name = name.partition(":")
    if not (module_name and separator and class_name):
        raise ConfigurationError(f'"{name}" names no class', "write it as module:Class, such as examples.names:Names")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module itself lacks another one, its own traceback says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f'there is no module "{module_name}"', "run this where it can be imported") from error
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Recipient)):
        raise ConfigurationError(
            f'"{class_name}" in {module_name} is no recipient', "name a subclass of xbus.recipient.Worker or Consumer"
        )
    return found


log = logging.getLogger(__name__)

KILLED = 1
"""The exit code where a process was killed: another try may go well, and a person should see why."""


def serve_instance(
    name: str, back_url: str, login: str, password: str, options: ServeOptions, config_path: Path | None
) -> None:
    """Serve the role until SIGTERM or SIGINT, or until the process that started this one is gone.

    Args:
        name: the recipient, as ``module:Class``.
        back_url: the address of the back.
        login: the role's login.
        password: the role's password.
        options: how it is served.
        config_path: the configuration file, which says how to log.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind = load_recipient(name)
    logs.set_up(load_or_default(config_path).logging)
    run(kind, back_url, login, password, **options)


def check_addresses(options: ServeOptions) -> None:
    """Let addresses pass that several processes can have.

    Raises:
        ConfigurationError: they would all listen at the same one.
    """
    bind, advertise = options.get("bind"), options.get("advertise")
    if bind is not None and not bind.endswith(":*"):
        raise ConfigurationError(
            f"several processes can't listen at {bind}", "let --bind end with :*, so that each takes a port of its own"
        )
    if advertise is not None and "{port}" not in advertise:
        raise ConfigurationError(
            f"several processes can't be called at {advertise}", "write {port} in --advertise: the port of each"
        )


def run_instances(number: int, *args: object) -> None:
    """Run some processes until SIGTERM or SIGINT, or until one ends with an error. Then end all of them.

    Args:
        number: so many.
        *args: those of :func:`serve_instance`, which is called in each.

    Raises:
        SystemExit: with the code of the first that ended with an error.
    """
    context = get_context("spawn")
    names = (f"instance {each}" for each in range(1, number + 1))
    processes = [context.Process(target=serve_instance, args=args, name=name) for name in names]

    ending = threading.Event()

    def end_all(*_: int | FrameType | None) -> None:
        ending.set()
        for process in processes:
            if process.is_alive():
                process.terminate()

    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, end_all)
    for process in processes:
        if not ending.is_set():
            process.start()
    code = 0
    while alive := [process for process in processes if process.is_alive()]:
        # All others have an exit code now. A process that is killed closes its sentinel before it has one.
        code = code or _first_code(processes)
        if code:
            end_all()
        wait([process.sentinel for process in alive])
    sys.exit(code or _first_code(processes))


def _first_code(processes: Iterable[SpawnProcess]) -> int:
    """Give the code of the first process that has ended with an error; 0 if none has."""
    return next(filter(None, map(_code, processes)), 0)


def _code(process: SpawnProcess) -> int:
    """Give the exit code of a process that has ended with an error; 0 for any other."""
    if process.exitcode in (None, 0, -signal.SIGTERM):
        return 0
    log.error("%s ended with code %s", process.name, process.exitcode, extra={"action": "instance_ended"})
    return max(process.exitcode or 0, KILLED)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@click.group(cls=CommandGroup)
def recipient() -> None:
    """Run workers and consumers, and show their state."""


@command(recipient)
def run_(
    bus: CommandBus,
    name: str = argument(metavar="MODULE:CLASS"),
    way: CommandLogin = way_to("back", "The role's login"),
    bind: str | None = option(
        "Listen for the broker at this address; * takes any port. By default no port is opened: the broker calls over"
        " the connection that this program makes.",
        metavar="URL",
    ),
    advertise: str | None = option(
        "With --bind: the address that the broker calls, if it differs; {port} is the port taken.", metavar="URL"
    ),
    start_timeout: float | None = option(
        "For how long to repeat on_start while it fails, before this ends with 3; by default for ever.",
        FiniteRange(0),
        metavar="SECONDS",
    ),
    instances: int = option(
        "So many processes, which share the envelopes of the role; it needs as many instances in the bus file.",
        click.IntRange(1, MOST_INSTANCES),
        default=1,
        show_default=True,
        metavar="NUMBER",
    ),
) -> None:
    """Run a subclass of Worker or Consumer until SIGTERM or SIGINT.

    Python also looks for the module in the working directory. Of several processes all end as soon as one ends with an
    error.
    """
    kind = load_recipient(name)
    address = way.address
    logs.set_up(load_or_default(bus.path).logging)
    login, password = way.login_and_password()
    given = {"bind": bind, "advertise": advertise, "start_timeout": start_timeout}
    options = cast(ServeOptions, {name: value for name, value in given.items() if value is not None})
    if instances == 1:
        run(kind, address, login, password, **options)
        return
    check_addresses(options)
    run_instances(instances, name, address, login, password, options, bus.path)


@command(recipient)
def list_(bus: CommandBus, output: Output = shown("role", watch=True)) -> None:
    """Show each role: its state, its current work, and how far it lags behind.

    A role that several programs may serve has a line for each of them below its own, with the address of the program.

    LAG counts the envelopes that the role lacks and that arrive by themselves: their turn is to come, or they wait, are
    held or retried. OLDEST is the age of the oldest of them. PARKED counts those that wait for a person. SEEN is the
    age of the last sign of life. The broker writes changes down every two seconds, and signs of life every ten.
    """
    found = bus.read(list_roles)
    owed_days = bus.config.journal.owed_days
    rows = [row for role in found for row in _rows(role, owed_days, output)]
    output.listing(found, lambda role: of_role(role, owed_days, output.now), rows, "No roles.")


class Detach(BusAction):
    """Take the absent consumer role LOGIN off the bus, which keeps nothing for it any more.

    It never gets the envelopes that it lacks, unless somebody sends them again. You can only detach a role that no
    recipient serves.
    """

    path = "recipients/detach"
    title = "Detach"
    words = "recipient detach"
    right = Right.OPERATOR
    question = "Detach {login}?"
    is_final = True

    login: str = argument(ROLE)
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield from self.plan(bus)
        yield "It can't register until somebody attaches it, and gets what is received from then on."

    def plan(self, bus: CommandBus) -> Iterator[str]:
        return told(bus.read(lambda connection: detaching.outlook(connection, self.login)))

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            detaching.detach(connection, self.login, self.reason, bus.now())
        yield f"{self.login} is detached. It can't register until: xbus recipient attach {quote(self.login)}"


class Attach(BusAction):
    """Put the detached consumer role LOGIN on the bus again: it gets envelopes received from now on."""

    path = "recipients/attach"
    title = "Attach"
    words = "recipient attach"
    right = Right.OPERATOR

    login: str = argument(ROLE)

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield f"Put {self.login} on the bus again. It gets envelopes that are received from now on."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            position = detaching.attach(connection, self.login, bus.now())
        yield f"{self.login} is attached: it gets all from position {position} on."


command_of(Detach, recipient)
command_of(Attach, recipient)


def _rows(role: RoleStatus, owed_days: float, output: Output) -> Iterator[Row]:
    """Give the line of a role, and those of its programs where it may have several."""
    works_on = Column("WORKS ON", narrows=12, optional=True)
    yield {
        name_column("ROLE"): role.role,
        name_column("SERVICE"): role.service,
        "KIND": role.kind,
        STATE: role.state,
        "SEEN": output.when(role.seen_at),
        "LAG": role.lag,
        "OLDEST": age(role.owed_since, output.now),
        "PARKED": _parked(role) if role.kind == "consumer" else None,
        works_on: ", ".join(_work(work, output) for work in role.work) or None,
        Column("ALARM", optional=True): "owed too long" if role.owes_too_long(owed_days, output.now) else None,
        Column("PAUSE", optional=True, wide_only=True): None if role.pause is None else role.pause.told,
    }
    for each in role.instances:
        yield {
            name_column("ROLE"): f"- {each['uri']}",
            STATE: each["state"],
            "SEEN": output.when(datetime.fromisoformat(each["seen_at"])),
            works_on: ", ".join(_work(work, output) for work in each["work"] or ()) or None,
        }


def _parked(role: RoleStatus) -> int | str:
    """Word the counts: ``1``, or ``1, 2 items`` if some are parked alone."""
    return f"{role.parked:,}, {counted(role.parked_items)}" if role.parked_items else role.parked


def _work(work: PresenceWork, output: Output) -> str:
    """Word the work: ``12: 40 %``, with the position and the progress; the call where that is unknown, or room is."""
    part, done = progress_of(work), work.get("done")
    progress = f"{int(100 * part)} %" if part is not None else f"{done:,} done" if done else ""
    words = [work["verb"]] if output.is_wide or not progress else []
    return f"{work.get('position') or work['envelope_id']}: {' '.join([*words, progress])}".rstrip()
