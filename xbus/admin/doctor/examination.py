"""The order of the doctor's looks: a later part is looked at only where what it stands on is sound."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from xbus.admin.doctor.broker import Side, look_at_broker
from xbus.admin.doctor.bus import look_at_bus
from xbus.admin.doctor.configuration import look_at_configuration
from xbus.admin.doctor.database import look_at_database
from xbus.admin.doctor.findings import DoctorFinding, of_error
from xbus.admin.doctor.machine import look_at_machine
from xbus.admin.doctor.objects import look_at_objects
from xbus.admin.why.asking import RunningBroker
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.engine import file_of
from xbus.clock import Clock
from xbus.config import Config, ConfigReading
from xbus.config.reaching import reachable
from xbus.errors import ConfigurationError

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
            objects = list(look_at_objects(connection, config.journal.objects))
            bus = list(look_at_bus(connection))
        yield "objects", objects
        yield "bus", bus
    yield "broker", _broker(config, path)


def _broker(config: Config, path: Path | None) -> list[DoctorFinding]:
    try:
        return list(look_at_broker(partial(_address, config), RunningBroker(path).health))
    except ConfigurationError as error:
        # A port that is chosen at each start.
        return [replace(of_error(error, "zmq"), is_problem=False)]


def _address(config: Config, side: Side) -> str:
    return reachable(config.zmq.frontsocket if side == "front" else config.zmq.backsocket, side)
