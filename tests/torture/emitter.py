"""An emitter that writes down what it begins and what is acknowledged, and goes on behind that when it was killed."""

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.torture.history import Log, lines
from tests.torture.old_sending import Old
from tests.torture.sending import Asking, Batches, Draft, Once, Queued, Small, Way
from xbus.errors import CallError, Failed

CANCELLED = 0.08
"""How many of the envelopes are cancelled."""

PAUSE_SECONDS = 0.25
"""The longest pause behind an envelope; it lets consumers catch up after a fault. Behind several at once it is as many
times as long."""

TOGETHER = 0.3
"""How many of the times several envelopes are sent at once, where the way can."""

ORDERING_KEYS = (None, "north", "south")

LISTENS = ".pid"
"""The end of the name of the file that holds the id of a process which can be asked to end."""

ENDS = frozenset({"sealed", "cancelled", "given_up", "refused"})
"""What is written at the end of an envelope."""

WAYS: dict[str, type[Way]] = {
    "asking": Asking,
    "batches": Batches,
    "once": Once,
    "outbox": Queued,
    "small": Small,
    "old": Old,
}
"""By the first word of the login."""


def is_old(login: str) -> bool:
    """Whether an emitter is one of 0.2.0."""
    return WAYS[_way(login)] is Old


def _way(login: str) -> str:
    return login.partition("_")[0]


def drafted(chance: random.Random, ref: str, way: type[Way]) -> Draft:
    """An envelope of any size that suits the way; one event at least has an item."""
    count = chance.randint(1, way.most_events)
    events = [(chance.choice(way.types), chance.randint(0, way.most_items)) for _ in range(count)]
    events[0] = (events[0][0], max(events[0][1], 1))
    ordering_key = chance.choice(ORDERING_KEYS) if way.orders else None
    is_cancelled = way.cancels and chance.random() < CANCELLED
    return Draft(ref, tuple(events), ordering_key, is_cancelled, is_once=way.once > 0 and chance.random() < way.once)


async def emit(front: str, login: str, path: Path, seed: int) -> None:
    """Send envelope after envelope until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    path.with_suffix(LISTENS).write_text(str(os.getpid()))
    begun, broken_off = begun_before(path)
    number = len(begun)
    log = Log(path)
    chance = random.Random(f"{seed}/{login}/{number}")
    kind = WAYS[_way(login)]
    async with kind(front, login, log, chance) as way:
        await send_together(way, log, [draft for draft in broken_off if draft.is_once])
        while not stop.is_set():
            sent = 1
            if way.has_room():
                if kind.most_together > 1 and chance.random() < TOGETHER:
                    sent = chance.randint(2, kind.most_together)
                drafts = [drafted(chance, f"{login}-{number + each}", kind) for each in range(1, sent + 1)]
                number += sent
                await send_together(way, log, drafts)
            try:
                await asyncio.wait_for(stop.wait(), chance.uniform(0, sent * PAUSE_SECONDS))
            except TimeoutError:
                pass  # the next one


def begun_before(path: Path) -> tuple[set[str], list[Draft]]:
    """What was begun before this process was: the refs of all, and those that were broken off."""
    begun: dict[str, Draft] = {}
    ended: set[str] = set()
    for line in lines(path):
        if line["what"] == "begin":
            events = tuple((type_name, items) for type_name, items in line["events"])
            begun[line["ref"]] = Draft(line["ref"], events, line["key"], line["cancelled"], line["once"])
        elif line["what"] in ENDS:
            ended.add(line["ref"])
    return set(begun), [draft for ref, draft in begun.items() if ref not in ended]


async def send_together(way: Way, log: Log, drafts: Sequence[Draft]) -> None:
    """Send envelopes at once, whatever becomes of them."""
    async with asyncio.TaskGroup() as tasks:
        for draft in drafts:
            tasks.create_task(send(way, log, draft))


async def send(way: Way, log: Log, draft: Draft) -> None:
    """Send one envelope, whatever becomes of it."""
    log.write(
        what="begin",
        ref=draft.ref,
        events=draft.events,
        key=draft.ordering_key,
        cancelled=draft.is_cancelled,
        once=draft.is_once,
        headed=way.heads,
    )
    try:
        await way.send(draft)
    except CallError as error:
        what = "given_up" if isinstance(error, Failed) else "refused"
        log.write(what=what, ref=draft.ref, code=error.code, cause=error.cause)


def main() -> None:
    """Emit until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("--front", "--login", "--log", "--seed"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    asyncio.run(emit(given.front, given.login, Path(given.log), int(given.seed)))


if __name__ == "__main__":
    main()
