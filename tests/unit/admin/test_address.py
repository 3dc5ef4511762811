"""Where a command finds the broker."""

import gc
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from xbus.admin.address import broker_address, call_broker
from xbus.config.reaching import reachable
from xbus.errors import ConfigurationError, Failed

ANSWER_SECONDS = 5.0
"""A call waits so long only where it asks in vain, and its error says so."""


@pytest.mark.parametrize(
    ("bound", "called"),
    [
        ("tcp://10.0.0.1:1984", "tcp://10.0.0.1:1984"),
        ("tcp://*:1984", "tcp://127.0.0.1:1984"),
        ("tcp://0.0.0.0:1984", "tcp://127.0.0.1:1984"),
        ("tcp://[::]:1984", "tcp://[::1]:1984"),
        ("ipc:///run/xbus.socket", "ipc:///run/xbus.socket"),
    ],
)
def test_what_is_bound_everywhere_is_called_here(bound: str, called: str) -> None:
    assert reachable(bound, "front") == called


@pytest.mark.parametrize("bound", ["tcp://127.0.0.1:0", "tcp://*:*"])
def test_a_port_left_to_chance_is_in_no_file(bound: str) -> None:
    with pytest.raises(ConfigurationError, match="has no fixed port"):
        reachable(bound, "back")


def test_a_given_address_stands() -> None:
    assert broker_address("front", "tcp://here:1", None) == "tcp://here:1"


def test_the_configuration_file_tells_the_address(tmp_path: Path) -> None:
    config = tmp_path / "config.ini"
    config.write_text("[zmq]\nfrontsocket = tcp://*:11\nbacksocket = tcp://10.0.0.1:12\n")
    assert broker_address("front", None, config) == "tcp://127.0.0.1:11"
    assert broker_address("back", None, config) == "tcp://10.0.0.1:12"


def test_somebody_must_tell_the_address() -> None:
    with pytest.raises(ConfigurationError, match="no configuration file is named"):
        broker_address("front", None, None)


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
async def test_a_host_that_no_host_can_be_called_cannot_be_reached(host: str) -> None:
    with pytest.raises(Failed, match=r"can't be reached: .*label"):
        await call_broker(f"tcp://{host}:1984", ANSWER_SECONDS, "xbus.health")


@pytest.mark.parametrize("was_there", [False, True])
async def test_a_socket_in_a_folder_at_which_nobody_listens_cannot_be_reached(was_there: bool, tmp_path: Path) -> None:
    place = tmp_path / "xbus.socket"
    if was_there:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(place))
    with pytest.raises(Failed, match=r"can't be reached: .*(No such file|refused)"):
        await call_broker(f"ipc://{place}", ANSWER_SECONDS, "xbus.health")


async def test_a_connection_that_takes_too_long_says_so() -> None:
    with ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # the system answers nobody beyond the queue
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        with pytest.raises(Failed, match=r"can't be reached: no connection within 0.2 seconds"):
            await call_broker(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 0.2, "xbus.health")


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
async def test_a_connection_that_has_no_time_left_says_so_at_once(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "xbus.socket"
    with socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX) as listening:
        listening.bind(("127.0.0.1", 0) if kind == "tcp" else str(place))
        listening.listen()
        address = f"ipc://{place}" if kind == "ipc" else f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Failed, match="can't be reached: no connection within 0 seconds"):
            await call_broker(address, 0, "xbus.health")
        gc.collect()  # a socket that is left open is an error
