"""The broker is killed while a role gets groups: few envelopes are in doubt, and all others come in groups again."""

import asyncio
import re
import time
import urllib.request
from collections import Counter

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.ports import free_port
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus.broker.back.dispatch.parties import MOST_ENVELOPES
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Envelope

ENVELOPES = 1500
KILLED_BEHIND = 400
COMMIT_SECONDS = 0.0005
MOST_IN_DOUBT = RESERVE_POSITIONS
"""Hand-overs are reserved so far behind those that are settled, whatever is out."""


class Slow(Consumer):
    """Counts each envelope that it commits, and takes its time for each."""

    def __init__(self) -> None:
        self.committed: Counter[str] = Counter()

    def commit(self, envelope: Envelope) -> None:
        time.sleep(COMMIT_SECONDS)
        self.committed[envelope.id] += 1


@pytest.mark.slow
async def test_few_envelopes_of_a_role_go_alone_behind_a_kill(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"notes": {"store": []}})
    listen = f"127.0.0.1:{free_port()}"
    daemon = start_daemon(sqlite_url, {"metrics": {"listen": listen}})
    slow = Slow()
    async with serving(daemon, "store_1", slow):
        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            receipts = await asyncio.gather(*(emitter.put("notes", [number]) for number in range(ENVELOPES)))
        await eventually(lambda: len(slow.committed) >= KILLED_BEHIND, "the role is in the midst of them")
        daemon.kill()
        before = sum(slow.committed.values())
        await asyncio.to_thread(daemon.start)
        await eventually(lambda: len(slow.committed) == ENVELOPES, "all have come")
        await eventually(lambda: deliveries(listen)[0] >= ENVELOPES - before, "the broker has counted them")
    assert set(slow.committed) == {receipt.envelope_id for receipt in receipts}
    repeats = sum(slow.committed.values()) - ENVELOPES
    done, in_groups = deliveries(listen)
    assert before < ENVELOPES, "the kill came too late to see anything"
    assert repeats <= 2 * MOST_ENVELOPES
    assert done - in_groups <= MOST_IN_DOUBT


def deliveries(listen: str) -> tuple[int, int]:
    """Read how many envelopes a broker has delivered since its start, and how many of these in groups."""
    with urllib.request.urlopen(f"http://{listen}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    done = re.findall(r'^xbus_deliveries_total\{.*result="done".*\} (\S+)$', page, re.MULTILINE)
    (in_groups,) = re.findall(r"^xbus_deliveries_in_groups_total (\S+)$", page, re.MULTILINE)
    return int(sum(map(float, done))), int(float(in_groups))
