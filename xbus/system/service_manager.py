"""Tells systemd and scripts how a program is; to systemd by the protocol of sd_notify(3): one datagram to a socket.

Without ``NOTIFY_SOCKET`` nobody listens, and nothing happens.
"""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from xbus import private_files
from xbus.periodic import every

log = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"


def notify(*states: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell some states at once, such as ``READY`` and ``STATUS=...``; one that can't be told is logged."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    # A name in the abstract namespace is written with an @ in the place of its zero byte.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(states).encode(), target)
    except OSError as error:
        log.warning("systemd was not told %s (%s)", states[0], error, extra={"action": "not_notified"})


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """Give the seconds within which systemd wants a sign of life of this process; None if it wants none."""
    wanted = environment.get("WATCHDOG_USEC", "")
    if not wanted.isdecimal() or environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / 1_000_000


async def keep_alive(seconds: float, environment: Mapping[str, str] = os.environ) -> None:
    """Give a sign of life for ever, twice within so many seconds: a loop that stands still gives none."""

    async def tell() -> None:
        notify(ALIVE, environment=environment)

    await every(seconds / 2, tell)


@asynccontextmanager
async def alive() -> AsyncIterator[None]:
    """Give signs of life within the block, where systemd wants some."""
    seconds = watchdog_seconds()
    if seconds is None:
        yield
        return
    async with asyncio.TaskGroup() as beside:
        telling = beside.create_task(keep_alive(seconds), name="watchdog")
        yield
        telling.cancel()


def tell_ready(addresses: Mapping[str, str], ready_file: Path | None) -> None:
    """Tell, in the log, by the ready file and to systemd, that calls are taken at these addresses."""
    shown = ", ".join(f"{name} at {address}" for name, address in addresses.items())
    log.info("ready: %s", shown, extra={"action": "ready"})
    if ready_file is not None:
        # Renamed into place, so that nobody reads half of it.
        part = ready_file.with_name(f"{ready_file.name}.part")
        with open(part, "w", opener=private_files.opener) as file:
            json.dump({"pid": os.getpid(), **addresses}, file)
        part.replace(ready_file)
    notify(READY, f"STATUS=ready: {shown}")


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Give an event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
