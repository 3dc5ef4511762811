"""Runs a bus over the items of a file."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xbus.admin import bus_file
from xbus.broker.journal.configuration import BusSpec
from xbus.config import BackSettings
from xbus.errors import Refused
from xbus.recipient import Recipient
from xbus.testing.bus import Bus
from xbus.testing.flow.hops import Hop, find_hops
from xbus.testing.probe import Mishap


@dataclass(frozen=True)
class FlowResult:
    """The way of the items of a file.

    Args:
        hops: in the order in which the items went.
        faults: some lines for each fault: the exception, the line of the author's code, and the item.
    """

    hops: Sequence[Hop]
    faults: Sequence[str]


def run_flow(path: Path, event_type: str, items: Sequence[object], roles: Mapping[str, type[Recipient]]) -> FlowResult:
    """Send items through the bus of a file, until all is delivered or parked.

    Args:
        path: the bus file.
        event_type: of the items.
        roles: the recipients of services; others note what they get, where they are consumers.

    Raises:
        ConfigurationError: the bus file can't be applied.
        Refused: a service is unknown (``unknown_service``), a worker is missing (``recipient_wanted``), or the items
            can't be sent.
    """
    spec = bus_file.read(path.read_bytes()).bus
    # One attempt: a fault is to be told, and not to be tried again.
    with Bus.from_file(path, back=BackSettings(attempts=1)) as bus:
        for service, recipient in roles.items():
            bus.serve(recipient, service)
        _check_workers(spec, event_type, roles)
        bus.emit(event_type, items)
        bus.run()
        # An envelope that fails in a bundle comes again alone, with the same fault.
        return FlowResult([*find_hops(bus, spec, event_type)], [*dict.fromkeys(_faults(bus, spec))])


def types_of(path: Path) -> list[str]:
    """List the event types of a bus file that an emitter may send."""
    spec = bus_file.read(path.read_bytes()).bus
    return sorted({name for profile in spec.profiles.values() for name in profile.event_types})


def _check_workers(spec: BusSpec, event_type: str, roles: Mapping[str, object]) -> None:
    logins = {role.login: role.service for role in spec.roles.values()}
    served = {logins.get(name, name) for name in roles}
    wanted = {
        node.service
        for each in spec.event_types.values()
        for node in each.nodes.values()
        if node.service and spec.services[node.service].kind == "worker"
    }
    if missing := sorted(wanted - served):
        raise Refused(
            f"no class is named for the worker {missing[0]}",
            f"give --role {missing[0]}=module:Class",
            code="recipient_wanted",
        )


def _faults(bus: Bus, spec: BusSpec) -> Iterator[str]:
    names = sorted({role.service for role in spec.roles.values()} & spec.services.keys())
    told = False
    for name in (*(each for each in names if spec.services[each].kind in ("worker", "consumer")), *sorted(spec.bots)):
        for mishap in bus.mishaps(name):
            told = True
            yield _of_mishap(mishap)
    if not told:
        for parked in bus.parked():
            yield f"{parked.role}: {parked.cause} ({parked.code})"
        for run in bus.runs():
            if run.state == "failed":
                yield f"{run.bot}: {run.error} ({run.code})"


def _of_mishap(mishap: Mishap) -> str:
    """Tell an exception with the line of the author's code at which it was raised, and the item."""
    error = mishap.error
    where = next((frame for frame in reversed(traceback.extract_tb(error.__traceback__))), None)
    lines = [f"{mishap.name}: {type(error).__name__}: {error}"]
    if where is not None:
        lines.append(f"at {where.filename}:{where.lineno}, in {where.name}: {where.line}")
    if mishap.item is not None:
        lines.append(f"item {mishap.item.index} of {mishap.event_type}: {mishap.item.value!r}")
    return "\n".join(lines)
