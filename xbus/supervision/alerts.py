"""Tells people of problems of health, by a program or a webhook, when each begins and when it ends."""

import asyncio
import contextlib
import logging
import socket
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypedDict

from xbus.backoff import Backoff, Patience
from xbus.clock import Clock
from xbus.supervision.health import Health, Problem

log = logging.getLogger(__name__)

FAILED = "alert_failed"
"""The code of the problem that alerts reach nobody on one way; other ways carry it."""

SENT = "sent"
DROPPED = "dropped"
"""The results of an alert."""

MOST_WAITING = 1_000
"""Alerts that wait on one way. Of more the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class AlertTimes:
    """The times of the tries, in seconds.

    Args:
        attempt: one attempt may take so long.
        first_delay: from the first attempt to the second; each further delay is twice as long.
        longest_delay: no delay is longer.
        patience: after so long without success an alert is dropped.
        told_after: after so many failed attempts in a row health tells of it.
    """

    attempt: float = 10.0
    first_delay: float = 1.0
    longest_delay: float = 60.0
    patience: float = 3600.0
    told_after: int = 3


class Alert(TypedDict):
    """An alert as a program or a webhook gets it; moments are in ISO 8601."""

    state: str
    code: str
    about: str
    cause: str
    next_step: str
    since: str
    at: str
    process: str
    host: str
    text: str


class AlertNotSent(Exception):
    """An attempt failed; the text says why, without secrets."""


class AlertRefused(AlertNotSent):
    """The receiver will never take this alert, though it may take others."""


class AlertChannel(Protocol):
    """A way on which alerts reach a person."""

    name: str

    async def send(self, alert: Alert) -> None:
        """Send one alert; whoever calls bounds the time.

        Raises:
            AlertNotSent: nobody got it; as ``AlertRefused`` where another attempt can't help.
        """


class Alerts:
    """Sends each change of health on all ways; one that is slow or broken delays no other.

    Args:
        health: its problems are told.
        channels: the ways.
        clock: dates the alerts.
        times: how long it tries.
    """

    def __init__(
        self, health: Health, channels: Sequence[AlertChannel], clock: Clock, times: AlertTimes | None = None
    ) -> None:
        self._health = health
        self._clock = clock
        self._host = socket.gethostname()
        self._loop = asyncio.get_running_loop()
        self.counts: Counter[tuple[str, str]] = Counter()
        """By the name of the way and the result, the number of alerts."""
        for channel in channels:
            self.counts.update({(channel.name, SENT): 0, (channel.name, DROPPED): 0})
        self._senders = [_Sender(channel, health, clock, times or AlertTimes(), self.counts) for channel in channels]
        if self._senders:
            health.on_change(self._changed)

    async def watch(self) -> None:
        """Send for ever what there is to tell."""
        await asyncio.gather(*(sender.watch() for sender in self._senders))

    def _changed(self, problem: Problem, is_over: bool) -> None:
        alert = self._alert(problem, is_over, self._clock.now())
        # Parts report from any thread. At the very end nobody is left who sends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._add, alert)

    def _add(self, alert: Alert) -> None:
        for sender in self._senders:
            sender.add(alert)

    def _alert(self, problem: Problem, is_over: bool, at: datetime) -> Alert:
        place = f"xbus ({self._health.name} on {self._host})"
        next_step = f". Next: {problem.next_step}" if problem.next_step else ""
        text = f"{place}: over: {problem.cause}" if is_over else f"{place}: {problem.cause}{next_step}"
        return {
            "state": "over" if is_over else "trouble",
            "code": problem.code,
            "about": problem.about,
            "cause": problem.cause,
            "next_step": problem.next_step,
            "since": problem.since.isoformat(),
            "at": at.isoformat(),
            "process": self._health.name,
            "host": self._host,
            "text": f"{text} [{problem.code}]",
        }


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt, and whether another one can help."""

    cause: str
    is_final: bool = False


class _Sender:
    """Sends alerts on one way, one after the other."""

    def __init__(
        self,
        channel: AlertChannel,
        health: Health,
        clock: Clock,
        times: AlertTimes,
        counts: Counter[tuple[str, str]],
    ) -> None:
        self._channel = channel
        self._health = health
        self._clock = clock
        self._times = times
        self._counts = counts
        self._waiting: deque[tuple[Alert, Patience]] = deque()
        self._wake = asyncio.Event()
        self._failures = 0

    def add(self, alert: Alert) -> None:
        """Have an alert sent behind all that wait; one that says that this way is broken can't take it."""
        if alert["code"] == FAILED and alert["about"] == self._channel.name:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._drop(self._waiting.popleft()[0], f"more than {MOST_WAITING} wait")
        backoff = Backoff(self._times.first_delay, self._times.longest_delay)
        patience = Patience(self._times.patience, backoff, self._clock.monotonic)
        # It runs out for an alert that waits behind others, too.
        patience.begin()
        self._waiting.append((alert, patience))
        self._wake.set()

    async def watch(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._send(*self._waiting.popleft())

    async def _send(self, alert: Alert, patience: Patience) -> None:
        while (failure := await self._attempt(alert)) is not None:
            delay = None if failure.is_final else patience.failed()
            if delay is None:
                self._drop(alert, failure.cause)
                return
            await asyncio.sleep(delay)
        self._counts[self._channel.name, SENT] += 1

    async def _attempt(self, alert: Alert) -> _Failure | None:
        """Try to send an alert; returns why it was not sent."""
        try:
            async with asyncio.timeout(self._times.attempt):
                await self._channel.send(alert)
        except TimeoutError:
            failure = _Failure(f"it took longer than {self._times.attempt:g} s")
        except AlertNotSent as failed:
            failure = _Failure(str(failed), isinstance(failed, AlertRefused))
        except Exception as fault:
            # A fault of ours: the bus goes on, and the alert is tried again.
            log.exception("an alert failed", extra={"action": FAILED, "channel": self._channel.name})
            failure = _Failure(f"a fault in the broker ({type(fault).__name__})")
        else:
            self._failures = 0
            self._health.over(FAILED, about=self._channel.name)
            return None
        self._note_failure(alert, failure.cause)
        return failure

    def _note_failure(self, alert: Alert, error: str) -> None:
        self._failures += 1
        extra = {"action": FAILED, "channel": self._channel.name, "code": alert["code"], "about": alert["about"]}
        log.warning("an alert was not sent: %s", error, extra=extra)
        if self._failures >= self._times.told_after:
            name = self._channel.name
            cause = f"alerts by [alerts] {name} reach nobody: {error}"
            self._health.trouble(FAILED, cause, f"try the {name} by hand, and correct it", about=name)

    def _drop(self, alert: Alert, error: str) -> None:
        self._counts[self._channel.name, DROPPED] += 1
        extra = {
            "action": "alert_dropped",
            "channel": self._channel.name,
            "state": alert["state"],
            "code": alert["code"],
            "about": alert["about"],
        }
        log.error("an alert is dropped: %s", error, extra=extra)
