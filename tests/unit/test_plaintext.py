"""Addresses without encryption that other machines reach."""

import pytest

from xbus.config import Config, ZmqSettings
from xbus.config.plaintext import has_encrypted_bell, is_local, needs_keys, plaintext_problems
from xbus.config.sections import CurveSettings

LOCAL = (
    "tcp://127.0.0.1:1984",
    "tcp://127.8.9.10:1",
    "tcp://[::1]:1984",
    "tcp://localhost:1984",
    "tcp://lo:1984",
    "ipc://bus",
    "inproc://bus",
)
OPEN = (
    "tcp://*:1984",
    "tcp://0.0.0.0:1984",
    "tcp://[::]:1984",
    "tcp://10.0.0.1:1984",
    "tcp://bus.example:1984",
    "tcp://eth0:1",
)


@pytest.mark.parametrize("address", LOCAL)
def test_a_local_address_is_known(address: str) -> None:
    assert is_local(address)
    assert [*plaintext_problems(Config(zmq=ZmqSettings(frontsocket=address)))] == []


@pytest.mark.parametrize("address", OPEN)
def test_an_open_address_must_be_allowed(address: str) -> None:
    assert not is_local(address)
    for zmq in (ZmqSettings(frontsocket=address), ZmqSettings(backsocket=address)):
        [problem] = plaintext_problems(Config(zmq=zmq))
        assert problem.code == "plaintext_refused"
        assert address in problem.cause
        assert "allow_plaintext" in problem.next_step
        assert [*plaintext_problems(Config(zmq=zmq, curve=CurveSettings(allow_plaintext=True)))] == []


def test_the_defaults_need_no_keys() -> None:
    assert not needs_keys(Config())
    assert [*plaintext_problems(Config())] == []


def test_encrypted_addresses_and_a_bell_over_a_network_need_keys() -> None:
    assert needs_keys(Config(zmq=ZmqSettings(encrypted_front="tcp://*:1985")))
    assert needs_keys(Config(zmq=ZmqSettings(encrypted_back="tcp://*:4892")))
    between = Config(zmq=ZmqSettings(b2fsocket="tcp://10.0.0.1:4893"))
    assert needs_keys(between)
    assert has_encrypted_bell(between)
    assert not has_encrypted_bell(Config(zmq=ZmqSettings(b2fsocket="tcp://127.0.0.1:4893")))
