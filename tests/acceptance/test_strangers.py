"""What somebody can do who reaches a port of the bus and has no login: nothing to others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.strangers import UNSEEDED, Stranger, made_up_id
from tests.support.waiting import wait_until
from xbus.errors import CallError

EXAMPLES = Path(__file__).parents[2] / "examples"

CLAIMED = 50
"""More ids than a process has given away here before a stranger comes."""


@pytest.mark.parametrize("place", ["front", "back", "recipient"])
def test_who_claims_the_coming_ids_harms_nobody(place: str, shared: Daemon, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if place == "recipient":
            process, address = stack.enter_context(_recipient(shared, tmp_path))
        else:
            process, address = shared.process, getattr(shared, place)
        for first in UNSEEDED:
            for number in range(first, first + CLAIMED):
                stack.enter_context(Stranger(address, made_up_id(number)))

        for _ in range(CLAIMED // 10):
            with Stranger(address) as honest:
                honest.call("nothing")
                _, error = honest.answer()
                assert isinstance(error, CallError)
        assert process.runs


@contextmanager
def _recipient(daemon: Daemon, folder: Path) -> Iterator[tuple[Process, str]]:
    """A recipient of the SDK in a process of its own, and where it listens."""
    address = f"tcp://127.0.0.1:{free_port()}"
    process = Process(
        *(script("xbus"), "recipient", "run", "consumer:Clients"),
        *("--back", daemon.back, "--login", "c_1", "--bind", address),
        output=folder / "recipient.log",
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": PASSWORD},
    )
    try:
        wait_until(lambda: "registered" in process.text or not process.runs, "it is registered")
        assert process.runs, process.text
        yield process, address
    finally:
        process.kill()


CROWD = 1000
"""Logins of old clients, which wait for longer; more of them than any machine can check in the time of one of ours."""

HEALTH = CROWD + 1


@pytest.mark.parametrize("place", ["front", "back"])
def test_a_token_does_not_go_to_who_takes_the_place_of_a_client_that_gave_up(place: str, shared: Daemon) -> None:
    address = getattr(shared, place)
    login = {"front": "emitter_1", "back": "c_1"}[place]
    too_late = shared.log.count("login_too_late")
    with Stranger(address) as crowd, Stranger(address, b"chosen") as client:
        for number in range(CROWD):
            crowd.call("login", "nobody", "wrong", request_id=number)
        _read_all(crowd)
        client.call("xbus.login", login, PASSWORD)
        _read_all(client)
        client.close()

        with _in_place_of_the_client(address) as thief:
            wait_until(lambda: shared.log.count("login_too_late") > too_late, "the login comes to its end")
            stolen = _read_all(thief)

    del stolen[HEALTH]
    assert [answer for answer in stolen.values() if not isinstance(answer, CallError)] == []


def _read_all(peer: Stranger) -> dict[int, Any]:
    """Wait until the broker has read what this peer has sent so far; what it has answered up to then."""
    peer.call("xbus.health", request_id=HEALTH)
    told: dict[int, Any] = {}
    while HEALTH not in told:
        told.update([peer.answer()])
    return told


@contextmanager
def _in_place_of_the_client(address: str) -> Iterator[Stranger]:
    """Somebody with the id ``chosen``; the broker does not hear him before the end of who had it last reaches it."""
    taken: list[Stranger] = []

    def is_heard() -> bool:
        thief = Stranger(address, b"chosen", patience=0.5)
        try:
            _read_all(thief)
        except TimeoutError:
            thief.close()
            return False
        taken.append(thief)
        return True

    wait_until(is_heard, "the id is free")
    with taken[0]:
        yield taken[0]
