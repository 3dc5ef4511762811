"""Systemd is told by datagrams, and whoever is not run by it notices nothing."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from xbus.system import service_manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """In the place of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def told(manager: socket.socket) -> list[str]:
    messages: list[str] = []
    while True:
        try:
            messages.append(manager.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_states_are_lines_of_one_datagram(manager: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    service_manager.notify(service_manager.READY, "STATUS=ready: front at tcp://[::]:1984", environment=environment)
    service_manager.notify(service_manager.STOPPING, environment=environment)
    assert told(manager) == ["READY=1\nSTATUS=ready: front at tcp://[::]:1984", "STOPPING=1"]


@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="only Linux has names without a file")
def test_the_socket_may_be_a_name_without_a_file() -> None:
    name = f"xbus test {os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        service_manager.notify(service_manager.READY, environment={"NOTIFY_SOCKET": f"@{name}"})
        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_systemd_nothing_happens(environment: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    service_manager.notify(service_manager.READY, environment=environment)
    assert caplog.records == []


def test_a_socket_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        service_manager.notify(service_manager.READY, environment={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "systemd was not told READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "nonsense"}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_a_sign_of_life_is_given_to_whom_it_is_wanted_of(environment: dict[str, str], seconds: float | None) -> None:
    assert service_manager.watchdog_seconds(environment) == seconds


async def test_signs_of_life_are_given_again_and_again(manager: socket.socket, tmp_path: Path) -> None:
    signs: list[str] = []

    def are_several() -> bool:
        signs.extend(told(manager))
        return len(signs) >= 3

    alive = asyncio.ensure_future(service_manager.keep_alive(0.02, {"NOTIFY_SOCKET": str(tmp_path / "notify")}))
    await eventually(are_several, "three signs of life")
    alive.cancel()
    assert set(signs) == {"WATCHDOG=1"}
