"""Three runners are killed and stopped at random, and the broker once, over the slots of two changes of the clock."""

import calendar
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.acceptance.test_bots import World, add_bots, bot
from tests.conftest import StartDaemon, StartProcess
from tests.support.processes import Process
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.back.bots.claims import LEASE_SECONDS
from xbus.broker.journal.database.connection import writing
from xbus.slots import Schedule

STRIKES = 8
RUNNERS = 3
ITEMS = 90
ZONE = "Europe/Paris"


def last_year() -> int:
    """The last year of which both changes are over."""
    now = datetime.now(UTC)
    return now.year if now.month > 10 else now.year - 1


def cron_of_change(month: int) -> str:
    """Every twenty minutes of the night in which the clock is changed: the last Sunday of the month."""
    weeks = calendar.monthcalendar(last_year(), month)
    day = max(week[calendar.SUNDAY] for week in weeks)
    return f"*/20 0-4 {day} {month} *"


CRONS = {"spring": cron_of_change(3), "autumn": cron_of_change(10)}


class Runners:
    """Three runners; one that is killed is replaced.

    Args:
        world: has the broker.
        chance: says who is struck, and how.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self.running = [world.runner() for _ in range(RUNNERS)]
        self._stopped: list[tuple[float, Process]] = []

    def strike(self) -> None:
        """Kill one, or stop it for longer than it may be silent."""
        self.go_on(time.monotonic())
        struck = self._chance.choice(self.running)
        if self._chance.random() < 0.3 and not self._stopped:
            struck.signal(signal.SIGSTOP)
            self._stopped.append((time.monotonic() + LEASE_SECONDS + 2, struck))
        elif struck not in [process for _, process in self._stopped]:
            struck.kill()
            self.running[self.running.index(struck)] = self._world.runner()

    def go_on(self, now: float) -> None:
        """Let those go on that were stopped for long enough."""
        for until, process in [*self._stopped]:
            if until <= now:
                process.signal(signal.SIGCONT)
                self._stopped.remove((until, process))


def put_of(world: World, login: str) -> Counter[str]:
    """How many envelopes a bot has sealed under each key."""
    statement = (
        sa.select(model.envelope.c.idempotency_key)
        .join(model.emitter, model.emitter.c.id == model.envelope.c.emitter_id)
        .where(model.envelope.c.state == "received", model.emitter.c.login == login)
    )
    with writing(world.daemon.url) as connection:
        return Counter(connection.execute(statement).scalars())


def wanted_slots(cron: str) -> Sequence[datetime]:
    begin = datetime(last_year(), 1, 1, tzinfo=UTC)
    return [*Schedule(cron, ZONE).between(begin, datetime.now(UTC))]


@pytest.mark.slow
def test_each_slot_and_each_batch_is_put_once(
    database_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    chance = random.Random(29)
    work = {"call": "reports_of_test:often", "attempts": 100, "instances": 2, "emits": ["reports"]}
    timed = "".join(
        bot(name, cron=cron, timezone=ZONE, missed="all", settings={"seconds": 0.4}, **work)
        for name, cron in CRONS.items()
    )
    sums = {**work, "call": "reports_of_test:sums", "emits": ["refunds"], "reads": ["orders"], "batch_items": 5}
    reading = bot("copies", settings={"seconds": 0.2}, **{**sums, "call": "copies_of_test:copies"})
    add_bots(database_url, timed + reading)
    with writing(database_url) as connection:
        begin = datetime(last_year(), 1, 1, tzinfo=UTC)
        connection.execute(sa.update(model.bot_state).values(slots_until=begin))
    (tmp_path / "copies_of_test.py").write_text(
        "import time\n\n\ndef copies(batch, out):\n    time.sleep(0.2)\n"
        '    out.put("refunds", [item.value for item in batch.items])\n'
    )
    world = World(start_daemon(database_url), tmp_path, start_process)
    world.send(*(("abc"[number % 3], number) for number in range(ITEMS)))
    runners = Runners(world, chance)
    for number in range(STRIKES):
        time.sleep(chance.uniform(0.3, 1.5))
        runners.strike()
        if number == STRIKES // 2:
            world.daemon.crash()
            world.daemon.start()
    runners.go_on(float("inf"))
    wait_until(lambda: len(world.values("refunds")) >= ITEMS and world.ended(), "all is done", 150)

    for name, cron in CRONS.items():
        slots = wanted_slots(cron)
        assert len(slots) in (12, 15, 18), "the night has an hour less or more"
        assert put_of(world, f"bot/{name}") == Counter(f"slot {slot:%Y-%m-%dT%H:%M:%SZ}" for slot in slots)
    values = world.values("refunds")
    assert sorted(value for _, value in values) == [*range(ITEMS)]
    for key in "abc":
        assert [value for each, value in values if each == key] == sorted(v for each, v in values if each == key)
    assert set(put_of(world, "bot/copies").values()) == {1}
    runs = world.runs()
    assert {run.state for run in runs} == {"done"}
    assert sum(run.slot is not None for run in runs) == sum(len(wanted_slots(cron)) for cron in CRONS.values())
