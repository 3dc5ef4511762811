"""From what triggers a bot to its call, with a runner that has called it before: the 99th percentile in ms.

The trigger is an event: the time counts from its acknowledgement. Beside it stands how long after the slots of a cron
of every second another bot is called. There is no floor.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD, running_bus, set_up
from benchmarks.buses import NO_CONSUMER
from benchmarks.databases import Databases
from benchmarks.envelopes.stopwatch import MS
from benchmarks.percentiles import percentile
from benchmarks.programs import bots
from benchmarks.programs.running import MOST_SECONDS
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus.broker.journal.configuration import BotSpec, BusSpec, RoleSpec, ServiceSpec
from xbus.emitter import Emitter

RUNNER = "runner"
EVERY_SECOND = "* * * * * *"
PAUSE_SECONDS = 0.02
"""Between a call and the next event, so that the run of the call has ended."""


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Measure the calls for events, then those of a cron."""
    reads, slots = BotSpec("bot", call=_name(bots.at_batch)), BotSpec("bot", call=_name(bots.at_slot))
    with _running(databases, replace(reads, reads=frozenset({EVENT_TYPE}))) as (daemon, notes):
        found = _after_events(daemon, notes, sizes.bot_calls)
    with _running(databases, replace(slots, cron=EVERY_SECOND)) as (_, notes):
        late = [note["late"] * MS for note in _read(notes, 1 + sizes.bot_slots)[1:]]
    more = {"p50_ms": percentile(found, 50), "slot_p50_ms": percentile(late, 50), "slot_longest_ms": max(late)}
    return Result(percentile(found, 99), None, "ms", more)


def _name(function: Any) -> str:
    return f"{function.__module__}:{function.__name__}"


@contextmanager
def _running(databases: Databases, bot: BotSpec) -> Iterator[tuple[Daemon, Path]]:
    """Run a bus with a bot and a runner; gives the file to which the bot adds a line at each call."""
    with databases() as url, tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        spec = BusSpec(
            services={RUNNER: ServiceSpec(RUNNER, "runner")},
            roles={RUNNER: RoleSpec(RUNNER, RUNNER)},
            bots={bot.name: replace(bot, settings={bots.NOTES: str(notes)})},
        )
        set_up(url, NO_CONSUMER.with_all(spec))
        with running_bus(url, None) as daemon:
            runner = Process(
                *(script("xbus"), "bot", "run", "--login", RUNNER, "--back", daemon.back, "--front", daemon.front),
                *("--allow", bots.__name__),
                env={"XBUS_PASSWORD": PASSWORD},
                output=Path(folder) / "output",
            )
            try:
                yield daemon, notes
            finally:
                runner.kill()


def _after_events(daemon: Daemon, notes: Path, calls: int) -> list[float]:
    found = []
    with Emitter(daemon.front, EMITTER, PASSWORD) as emitter:
        # The first call starts a process and imports the module.
        for number in range(1 + calls):
            emitter.put(EVENT_TYPE, ["x"])
            acknowledged = time.monotonic()
            called = _read(notes, number + 1)[-1]["at"]
            found.append(max(0.0, called - acknowledged) * MS)
            time.sleep(PAUSE_SECONDS)
    return found[1:]


def _read(notes: Path, calls: int) -> Sequence[dict[str, Any]]:
    """Wait for so many calls, and give what each has noted."""
    wait_until(lambda: notes.read_bytes().count(b"\n") >= calls, f"{calls} calls", MOST_SECONDS)
    return [json.loads(line) for line in notes.read_text().splitlines()]
