"""Programs that wait for the bus say why, and commands wait no longer than their time-out."""

import ast
import asyncio
import logging
from collections.abc import Iterator

import pytest

from tests.support.sources import CHECKOUT, modules_with
from tests.unit.emitter.test_patience import HandClock
from xbus.emitter.patience import EmitterPatience, within
from xbus.errors import ConnectionLost, Failed, TimedOut
from xbus.waiting import GRACE_SECONDS, WaitLog

PAUSED = Failed('the event type "invoice" is paused by bob: moving house', "resume it", code="paused")

WAITS_IN_SILENCE = {
    "xbus/broker/cli.py": "logs each try",
    "xbus/recipient/running.py": "logs each try",
    "xbus/recipient/registration.py": "logs each try",
    "xbus/recipient/bulk.py": "reports the progress of a job, which nobody waits for",
    "xbus/supervision/alerts.py": "logs each alert that was not sent",
    "xbus/bots/runner.py": "logs each try",
    "xbus/emitter/patience.py": "is the patience of emitters",
    "xbus/backoff.py": "is the patience itself",
    "spark_worker/spark/patience.py": "is the patience of Spark",
    "spark_worker/worker/serving.py": "logs each try",
}
"""Modules that make delays between tries without a ``WaitLog``, or that give it to others, and why."""

PAUSE_IS_THE_AUTHORS = {
    "xbus/bots/child.py": "the emitter of a bot's author",
    "spark_worker/sink/sending.py": "a job that waits, and logs why",
}
"""Modules whose emitter waits for the end of a pause without limit, and why."""


OTHERS = ("xbus/broker/", "xbus/testing/", "xbus/http/", "xbus/rpc/")
"""Programs without a person who waits for an answer, and what is beneath the calls."""


def test_a_wait_is_told_once_and_again_with_another_cause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = HandClock()
    log = WaitLog(logging.getLogger("waits"), "waits", clock.monotonic)
    log.waits(PAUSED, 30)
    log.waits(PAUSED, 30)
    log.waits(Failed("the journal is full\x1b[2J", code="journal_full"))
    log.ends()
    log.ends()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"waiting for up to 30 s: {PAUSED}"),
        ("INFO", f"waiting for up to 30 s: {PAUSED}"),
        ("WARNING", "waiting: the journal is full\\x1b[2J"),
        ("INFO", "the wait is over"),
    ]
    assert [getattr(record, "code", "") for record in caplog.records] == ["paused", "paused", "journal_full", ""]


def test_a_failure_that_mostly_passes_is_told_when_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    log = WaitLog(logging.getLogger("waits"), "waits", clock.monotonic)
    log.waits(ConnectionLost("the connection was lost"))
    assert not caplog.records
    clock.seconds = GRACE_SECONDS
    log.waits(ConnectionLost("the connection was lost"))
    assert len(caplog.records) == 1


def test_silence_does_not_hide_the_answer_before_it() -> None:
    clock = HandClock()
    patience = EmitterPatience(30, clock)
    patience.begin()
    patience.delay_after(Failed("the disk is full", code="journal_unavailable"))
    clock.seconds = 30
    with pytest.raises(Failed, match="the disk is full") as failed:
        patience.delay_after(TimedOut("the bus does not answer"))
    assert failed.value.code == "journal_unavailable"


async def test_a_time_out_has_the_cause_of_the_wait() -> None:
    with pytest.raises(Failed, match="is paused by bob") as failed:
        await within(0.01, asyncio.Event().wait(), lambda: PAUSED)
    assert failed.value.code == "paused"
    with pytest.raises(TimedOut):
        await within(0.01, asyncio.Event().wait(), lambda: ConnectionLost("gone"))


def calls_of(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a name in programs outside of the broker's parts, by the path of their module."""
    for module, tree in modules_with(tuple(f"{name}(" for name in names), "xbus", "spark_worker"):
        if module.startswith(OTHERS) and module != "xbus/broker/cli.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
                yield module, node


def test_everybody_who_tries_again_says_why() -> None:
    untold = {
        module
        for module, _ in calls_of("Backoff", "Patience")
        if "WaitLog(" not in (CHECKOUT / module).read_text() and module not in WAITS_IN_SILENCE
    }
    assert not untold, "log the wait by xbus.waiting.WaitLog"


def test_no_command_waits_for_ever_for_the_end_of_a_pause() -> None:
    unbounded = {
        module
        for module, call in calls_of("Emitter", "AsyncEmitter")
        if not any(keyword.arg in ("pause_seconds", None) for keyword in call.keywords)
    }
    assert unbounded == set(PAUSE_IS_THE_AUTHORS)


def test_no_queue_is_asked_with_a_time_out() -> None:
    """CPython's ``SimpleQueue`` then waits for ever where the thread loses its core for longer than the time-out."""
    asked = {
        f"{module}:{node.lineno}"
        for module, tree in modules_with(("SimpleQueue",), "xbus", "spark_worker")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if any(keyword.arg == "timeout" for keyword in node.keywords)
    }
    assert not asked, "wait for a threading.Lock"
