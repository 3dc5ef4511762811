"""The ids that ROUTER sockets make up for their peers: other ones for each socket and each process."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zmq

from tests.integration.rpc.conftest import Dial
from tests.support.processes import run
from tests.support.strangers import UNSEEDED
from tests.support.waiting import wait_until
from xbus.rpc.context import Context, router

CHECKOUT = Path(__file__).parents[3]
PROCESSES = 3
SOCKETS = 5

IN_A_PROCESS = """
import zmq
from xbus.rpc.context import new_context, router

with new_context() as context, router(context) as socket, context.socket(zmq.DEALER) as peer:
    peer.connect(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    peer.send(b"")
    print(int.from_bytes(socket.recv_multipart()[0], "big"))
"""


def test_no_two_sockets_begin_with_the_same_id(context: Context, dial: Dial) -> None:
    ids = [_first_id(context, dial) for _ in range(SOCKETS)]

    assert len({*ids, *UNSEEDED}) == SOCKETS + len(UNSEEDED)


def test_no_two_processes_begin_with_the_same_id() -> None:
    with ThreadPoolExecutor(PROCESSES) as threads:
        ended = list(threads.map(lambda _: run(sys.executable, "-c", IN_A_PROCESS), range(PROCESSES)))

    assert [program.stderr for program in ended] == [""] * PROCESSES
    ids = {int(program.stdout) for program in ended}
    assert len({*ids, *UNSEEDED}) == PROCESSES + len(UNSEEDED)


def test_all_router_sockets_of_the_bus_are_made_there() -> None:
    makers = [path for folder in ("xbus", "spark_worker") for path in (CHECKOUT / folder).rglob("*.py") if _makes(path)]

    assert makers == [CHECKOUT / "xbus" / "rpc" / "context.py"]


def _makes(path: Path) -> bool:
    return re.search(r"\bzmq\.(ROUTER|REP)\b", path.read_text(encoding="utf-8")) is not None


def _first_id(context: Context, dial: Dial) -> int:
    with router(context) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        dial(f"tcp://127.0.0.1:{port}").send(b"")
        wait_until(lambda: socket.poll(0, zmq.POLLIN), "the first message")
        return int.from_bytes(socket.recv_multipart()[0], "big")
