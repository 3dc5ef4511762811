"""Whatever dies inside the broker ends it, with exit code 3 and the reason in the log: nothing goes on half alive."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from xbus.broker import daemon
from xbus.broker.back.dispatch.backlog_changes import BacklogChanges
from xbus.broker.back.log.reader import LogReader
from xbus.broker.back.monitoring.overdue import OverdueBacklog
from xbus.broker.back.monitoring.presence import Presence
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.replies import ReplyService as RepliesOfConsumers
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.ended_by_others import OpenTimeouts, OperatorCancels
from xbus.broker.front.envelopes.replies import ReplyRequests as RepliesToEmitters
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.commit.committer import Committer
from xbus.broker.journal.commit.writer import Writer
from xbus.broker.sessions import Sessions
from xbus.config import Config, DaemonSettings, DatabaseSettings, SupervisionSettings, ZmqSettings
from xbus.rpc.bell import Bell
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.server import Server
from xbus.supervision.pinger import Pinger
from xbus.system import service_manager


class Boom(Exception):
    """What the part under test dies of."""


@pytest.fixture
def config(sqlite_url: str, tmp_path: Path) -> Iterator[Config]:
    """Of a broker in this process; it leaves Python's collector as it was."""
    threshold = gc.get_threshold()
    yield Config(
        database=DatabaseSettings(url=sqlite_url),
        zmq=ZmqSettings(frontsocket=f"ipc://{tmp_path}/front", backsocket=f"ipc://{tmp_path}/back"),
        supervision=SupervisionSettings(enabled=True, interval=0.01),
        # After this the process is broken off, which is that of the tests.
        daemon=DaemonSettings(stop_timeout=600),
    )
    gc.unfreeze()
    gc.set_threshold(*threshold)


def run(config: Config, monkeypatch: pytest.MonkeyPatch, when_ready: Callable[[], Any] = lambda: None) -> int:
    """Run a broker until it ends by itself, or the deadline of the test is over."""
    ready = service_manager.tell_ready
    kept: list[Any] = []

    def tell_ready(*args: Any) -> None:
        ready(*args)
        kept.append(when_ready())

    monkeypatch.setattr(daemon, "tell_ready", tell_ready)
    return daemon.run(config, Path(), only=None, ready_file=None)


def dies(*_: Any, **__: Any) -> Any:
    raise Boom("the test brought it down")


async def dies_later(*_: Any, **__: Any) -> Any:
    raise Boom("the test brought it down")


def assert_told(caplog: pytest.LogCaptureFixture) -> None:
    told = [record for record in caplog.records if getattr(record, "action", "") == "died"]
    assert any(record.levelno == logging.CRITICAL and "brought it down" in record.getMessage() for record in told)


@pytest.mark.parametrize(
    ("part", "method"),
    [
        (Configuration, "watch"),
        (Sessions, "keep"),
        (RepliesToEmitters, "watch"),
        (RepliesOfConsumers, "watch"),
        (DeliveryLedger, "keep"),
        (LogReader, "follow"),
        (Pinger, "watch"),
        (Presence, "keep"),
        (OverdueBacklog, "watch"),
        (Pruner, "watch"),
        (Space, "watch"),
        (OpenTimeouts, "watch"),
        (OperatorCancels, "watch"),
        (BacklogChanges, "carry_out"),
    ],
)
def test_a_task_that_dies(
    part: type, method: str, config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(part, method, dies_later)
    assert run(config, monkeypatch) == daemon.BROKEN
    assert_told(caplog)


def test_the_thread_of_the_journal(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Committer, "look", dies)
    assert run(config, monkeypatch) == daemon.BROKEN
    assert_told(caplog)


def test_answers_of_the_journal(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are given by a callback: who waits for one that died would wait for ever."""

    def break_it() -> None:
        monkeypatch.setattr(Writer, "_answer", dies)
        call(config.zmq.backsocket, "login", "nobody", "nothing")

    real_login = Sessions.login

    async def login(self: Sessions, *arguments: Any) -> str:
        await self._journal._writer.run(lambda connection: None)
        return await real_login(self, *arguments)

    monkeypatch.setattr(Sessions, "login", login)
    assert run(config, monkeypatch, break_it) == daemon.BROKEN
    assert_told(caplog)


@pytest.mark.parametrize("socket", ["frontsocket", "backsocket"])
def test_the_reading_of_a_socket(
    socket: str, config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Server, "_serve", dies)
    assert run(config, monkeypatch, lambda: call(getattr(config.zmq, socket), "xbus.health")) == daemon.BROKEN
    assert_told(caplog)


def test_the_bell_between_the_parts(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Bell, "_hear", dies)
    connect = Bell.connect

    def connect_and_ring(self: Bell) -> None:
        connect(self)
        self.ring()

    monkeypatch.setattr(Bell, "connect", connect_and_ring)
    assert run(config, monkeypatch) == daemon.BROKEN
    assert_told(caplog)


def test_what_does_not_end_by_itself_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    last_resort = daemon._LastResort(0, starts_anew=False)
    with pytest.raises(asyncio.CancelledError), last_resort.at_death():
        raise asyncio.CancelledError
    last_resort._timer.join()
    assert ended == [daemon.BROKEN]


def call(address: str, verb: str, *args: Any) -> "asyncio.Task[None]":
    """Call the broker from inside, as somebody outside would."""

    async def work() -> None:
        context = new_context()
        client = Client(context, name="test")
        try:
            client.connect(address)
            await asyncio.wait([client.call(verb, *args)], timeout=60)
        finally:
            client.close()
            context.destroy(linger=0)

    return asyncio.get_running_loop().create_task(work())
