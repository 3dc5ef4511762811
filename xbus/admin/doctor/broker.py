"""The doctor's look at the running broker: whether it answers, and what it says of itself."""

import socket
from collections.abc import Callable, Iterator
from typing import Literal
from urllib.parse import urlsplit

from xbus.admin.doctor.findings import DoctorFinding
from xbus.rpc.messages import HealthReport

Side = Literal["front", "back"]

CONNECT_SECONDS = 3.0

SIDES: tuple[Side, ...] = ("front", "back")


def look_at_broker(
    address_of: Callable[[Side], str], health_of: Callable[[Side], HealthReport | None]
) -> Iterator[DoctorFinding]:
    """Find a broker that does not run, a stranger at its port, and the problems that it tells itself.

    Args:
        address_of: gives the address of a side.
        health_of: asks a side how it is; None if no broker answers there.
    """
    told: set[tuple[str, str | None]] = set()
    for side in SIDES:
        report = health_of(side)
        if report is None:
            yield _silent(side, address_of(side))
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
