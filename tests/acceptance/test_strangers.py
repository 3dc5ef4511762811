"""What somebody can do who reaches a port of the bus and has no login: nothing to others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
