"""``xbus doctor`` looks at an installation from its configuration to its running broker, and names what needs a hand.

Each look yields findings and changes nothing. A later part is looked at only where what it stands on is sound.
"""

import os
import resource
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

import click

from xbus import logs, private_files
from xbus.admin.address import Side, broker_address
from xbus.admin.objects import fields_of
from xbus.admin.output import CAUSE, Column, Output, counted, name_column, rows_of
from xbus.admin.signatures import CommandBus, command, shown
from xbus.admin.why.inquiry import RunningBroker
from xbus.broker.journal.configuration import logins_without_password
from xbus.broker.journal.database import promises, schema
from xbus.broker.journal.database.connection import Connection, reading
from xbus.broker.journal.database.engine import file_of
from xbus.broker.journal.objects.claiming import check_stores
from xbus.broker.journal.operations.checkup import read_clock, read_services_without_role, read_types_without_node
from xbus.broker.journal.operations.copies import read_foreign
from xbus.clock import Clock
from xbus.config import Config, ConfigReading, Option, is_in, load, read, without_secrets, written
from xbus.config.plaintext import plaintext_problems
from xbus.ending import REFUSED
from xbus.errors import ConfigurationError, XbusError


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that needs a hand.

    Args:
        code: a stable name for it; ``docs/operating.md`` lists all.
        about: the file, address, login or name that it is about.
        cause: one sentence without a final full stop.
        next_step: the cure.
        is_problem: whether the bus suffers from it; else it is a note.
    """

    code: str
    about: str
    cause: str
    next_step: str
    is_problem: bool = True


def of_error(error: XbusError, about: str) -> DoctorFinding:
    """Make a finding of an error that some check has raised."""
    return DoctorFinding(error.code, about, error.cause, error.next_step)


CONNECT_SECONDS = 3.0

SIDES: tuple[Side, ...] = ("front", "back")


def look_at_broker(path: Path | None) -> Iterator[DoctorFinding]:
    """Find a broker that does not run, a stranger at its port, and the problems that it tells itself.

    Args:
        path: the file of its configuration, if it has one.
    """
    told: set[tuple[str, str | None]] = set()
    for side in SIDES:
        report = RunningBroker(path).health(side)
        if report is None:
            yield _silent(side, broker_address(side, None, path))
            continue
        for problem in report["problems"]:
            key = (problem["code"], problem.get("about"))
            if key not in told:
                told.add(key)
                about = problem.get("about") or side
                yield DoctorFinding(problem["code"], about, problem["cause"], problem["next_step"])


def _silent(side: Side, address: str) -> DoctorFinding:
    if _is_taken(address):
        return DoctorFinding(
            "port_of_another_program",
            address,
            f"something listens at the address of the {side}, and it does not answer as a broker does",
            "see what listens there, or whether the broker hangs; configure another port if it is not the broker",
        )
    return DoctorFinding(
        "broker_not_running",
        address,
        f"nothing listens at the address of the {side}",
        "start_xbusbroker starts it; nothing is lost while it is away",
        is_problem=False,
    )


def _is_taken(address: str) -> bool:
    place = urlsplit(address)
    if place.scheme != "tcp" or place.hostname is None or place.port is None:
        return False
    try:
        socket.create_connection((place.hostname, place.port), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def look_at_bus(connection: Connection) -> Iterator[DoctorFinding]:
    """Find what an administrator has left unfinished.

    Args:
        connection: to a database with the schema of this program.
    """
    for kind, login in logins_without_password(connection):
        yield DoctorFinding(
            "no_password",
            login,
            f"the {kind} {login} has no password, so it can't log in",
            f"xbus password {kind} {quote(login)}",
        )
    for service in read_services_without_role(connection):
        yield DoctorFinding(
            "service_without_role",
            service,
            f"the service {service} is in a graph and no role serves it, so nobody gets what comes there",
            f'add a [[role]] with service = "{service}" to the bus file',
        )
    for name in read_types_without_node(connection):
        yield DoctorFinding(
            "type_without_node",
            name,
            f"events of the type {name} lead to no service",
            "add an [[event_type.node]] to the bus file, or remove the type",
            is_problem=False,
        )
    for foreign in read_foreign(connection):
        yield DoctorFinding(
            "foreign_registration",
            foreign.role,
            f"the role {foreign.role} registered where this journal was before, so nobody calls it",
            "xbus journal adopt if this is the live journal, xbus journal forget if it is a copy",
        )


CONFIGURATION = "configuration"


def look_at_configuration(found: ConfigReading, path: Path | None) -> Iterator[DoctorFinding]:
    """Find wrong options, and a file with secrets that everybody may read.

    Args:
        found: the configuration as it was read.
        path: its file, if it has one.
    """
    about = CONFIGURATION if path is None else str(path)
    for problem in (*found.problems, *problems_in_use(found.config)):
        yield of_error(problem, about)
    # The broker's group may read it: docs/production.md installs it so.
    if path is not None and path.stat().st_mode & stat.S_IROTH and _has_secret(found, path):
        yield DoctorFinding(
            "configuration_open_to_others",
            about,
            "everybody on this machine may read the file, and it has a secret in it",
            f"chmod 640 {path}, and give it to the group of the broker",
        )


def problems_in_use(config: Config) -> Iterator[XbusError]:
    """Find the problems that only show when the configuration is used, without a look at the database."""
    yield from plaintext_problems(config)
    try:
        logs.check(config.logging)
    except XbusError as error:
        yield error


def _has_secret(found: ConfigReading, path: Path) -> bool:
    return any(source == str(path) and _is_secret(option, found) for option, source in found.sources.items())


def _is_secret(option: Option, found: ConfigReading) -> bool:
    value = written(getattr(getattr(found.config, option.section), option.field))
    return option.is_secret and without_secrets(value) != value


MOST_APART = timedelta(seconds=5)
"""The most that the clocks of this machine and the database may differ. Leases and moments of replays compare them."""


def look_at_database(url: str, clock: Clock) -> Iterator[DoctorFinding]:
    """Find a database that can't be used as it is.

    Args:
        url: its SQLAlchemy URL.
        clock: of this machine.
    """
    about = without_secrets(url)
    try:
        schema.check(url)
        promises.check_promises(url)
        with reading(url) as connection:
            unsafe_standby = promises.has_asynchronous_standby(connection)
            is_unchecked = promises.lacks_checksums(connection)
            apart = abs(read_clock(connection, clock.now()) - clock.now())
    except XbusError as error:
        yield of_error(error, about)
        return
    if is_unchecked:
        yield DoctorFinding("no_checksums", about, *promises.NO_CHECKSUMS, is_problem=False)
    if unsafe_standby:
        yield DoctorFinding(
            promises.STANDBY_NOT_SYNCHRONOUS, about, promises.STANDBY_CAUSE, promises.STANDBY_STEP, is_problem=False
        )
    if apart > MOST_APART:
        yield DoctorFinding(
            "clocks_differ",
            about,
            f"the clocks of this machine and of the database are {apart.total_seconds():.0f} s apart",
            "let both follow NTP",
        )


LEAST_FREE_BYTES = 2**30
"""Free bytes below which a disk is short. A busy bus may write as much within a minute."""

LEAST_DESCRIPTORS = 4096
"""Descriptors below which a broker is short: each connection takes one."""

MIB = 2**20


def look_at_machine(journal_file: Path | None) -> Iterator[DoctorFinding]:
    """Find a full disk, a journal that others may read, and a low limit of descriptors.

    Args:
        journal_file: the file of a journal in SQLite that is on this machine.
    """
    if journal_file is not None and journal_file.parent.exists():
        yield from _disk(journal_file)
    if journal_file is not None and private_files.is_open_to_others(journal_file):
        yield DoctorFinding(
            "journal_open_to_others",
            str(journal_file),
            "others on this machine may read the journal",
            f"chmod 600 {journal_file} {journal_file}-*",
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        yield DoctorFinding(
            "few_descriptors",
            "descriptors",
            f"a process of this user may have {hard} descriptors, and each connection takes one",
            f"set LimitNOFILE={LEAST_DESCRIPTORS * 16} in the unit of the broker, or ulimit -n before its start",
            is_problem=False,
        )


def _disk(journal_file: Path) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(journal_file.parent).free
    if free < LEAST_FREE_BYTES:
        yield DoctorFinding(
            "disk_short",
            str(journal_file.parent),
            f"the disk of the journal has {free // MIB} MiB left",
            "make room, or set [journal] max_bytes, keep_settled_days or an archive",
        )


PARTS: Sequence[str] = ("configuration", "machine", "database", "objects", "bus", "broker")


def examine(found: ConfigReading, path: Path | None, clock: Clock) -> Iterator[tuple[str, list[DoctorFinding]]]:
    """Look at one part behind the other.

    Args:
        found: the configuration as it was read, whatever is wrong in it.
        path: its file, if it has one.
        clock: of this machine.

    Yields:
        Each part that was looked at, of ``PARTS``, with its findings.
    """
    configuration = list(look_at_configuration(found, path))
    yield "configuration", configuration
    if found.problems:
        return
    config = found.config
    yield "machine", list(look_at_machine(file_of(config.database.url)))
    database = list(look_at_database(config.database.url, clock))
    yield "database", database
    if not any(finding.is_problem for finding in database):
        with reading(config.database.url) as connection:
            stores = check_stores(connection, config.journal.objects)
            # xbus fsck looks at each object in them.
            objects = [of_error(error, about) for about, error in stores]
            bus = list(look_at_bus(connection))
        yield "objects", objects
        yield "bus", bus
    try:
        broker = list(look_at_broker(path))
    except ConfigurationError as error:
        # A port that is chosen at each start.
        broker = [replace(of_error(error, "zmq"), is_problem=False)]
    yield "broker", broker


HEADS = (name_column("CODE"), name_column("ABOUT"), CAUSE, Column("NEXT STEP", narrows=20, breaks=True))


@command()
def doctor(bus: CommandBus, output: Output = shown("finding")) -> None:
    """Examine the installation, and show for each finding its cure.

    The command looks at the configuration, this machine, the database, its object stores, the bus in it, and the
    running broker. It changes nothing.

    \b
    Exit codes:
      0  there is no problem
      1  there is one; the command shows its cure
    """
    if bus.path is None and not is_in(os.environ):
        load(bus.path)  # ends here, and says what to name
    found = dict(examine(read(bus.path), bus.path, bus.clock))
    findings = [finding for of_part in found.values() for finding in of_part]
    if output.as_json:
        output.objects(_facts(part, finding) for part, of_part in found.items() for finding in of_part)
    else:
        click.echo("\n".join(_told(found, output)))
    click.get_current_context().exit(REFUSED if any(finding.is_problem for finding in findings) else 0)


def _told(found: Mapping[str, Sequence[DoctorFinding]], output: Output) -> list[str]:
    lines = [f"{part:<14} {_outcome(found.get(part))}" for part in PARTS]
    findings = [finding for of_part in found.values() for finding in of_part]
    for title, of_kind in (("PROBLEMS", True), ("NOTES", False)):
        cells = ((each.code, each.about, each.cause, each.next_step) for each in findings if each.is_problem is of_kind)
        lines += output.block(title, rows_of(HEADS, cells))
    return lines


def _outcome(of_part: Sequence[DoctorFinding] | None) -> str:
    if of_part is None:
        return "not looked at, as what it stands on has a problem"
    problems = sum(finding.is_problem for finding in of_part)
    notes = len(of_part) - problems
    said = [counted(number, what) for number, what in ((problems, "problem"), (notes, "note")) if number]
    return ", ".join(said) or "well"


def _facts(part: str, finding: DoctorFinding) -> dict[str, object]:
    severity = "problem" if finding.is_problem else "note"
    return {"part": part, **fields_of(finding, "is_problem"), "severity": severity}
