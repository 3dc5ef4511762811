"""Where a command finds the broker."""

from pathlib import Path

import pytest

from xbus.admin.address import broker_address
from xbus.config.reaching import reachable
from xbus.errors import ConfigurationError


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
