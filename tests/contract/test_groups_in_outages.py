"""Messages whose COMMIT the database goes away at: the same journal and answers, whether it took place or not."""

from collections import defaultdict
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.faults import Faults
from tests.support.groups import (
    carried_out,
    contest,
    entry,
    keyed,
    messages_of,
    some_calls,
    told,
    unplaced,
    without_position,
)
from xbus.rpc.codec import pack_items

OUTAGES = {"before": Faults.before_commit, "behind": Faults.after_commit}
"""When the database goes away, seen from the COMMIT: what is sent again is not there, or is there already."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("moment", OUTAGES)
async def test_an_outage_at_a_commit_changes_nothing_but_positions(engine: sa.Engine, moment: str, seed: int) -> None:
    """Some ids and keys of the message are taken by earlier ones, with the same content or with another one."""
    random = Random(f"{moment} {seed}")
    messages = contest(messages_of(some_calls(random, contested=False), "at random", random), random)
    answers, rows = await carried_out(messages)
    outage = (random.randrange(len(messages)), OUTAGES[moment](Faults(engine)))
    again, rows_again = await carried_out(messages, engine, outage)
    assert [without_position(told(each)) for each in again] == [without_position(told(each)) for each in answers]
    for of_table, of_table_again in zip(unplaced(rows), unplaced(rows_again), strict=True):
        assert sorted(of_table_again, key=repr) == sorted(of_table, key=repr)
    positions = sorted(row["position"] for row in rows_again[0])
    assert positions == [*range(1, len(positions) + 1)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("moment", OUTAGES)
async def test_of_two_contents_in_a_message_one_is_kept(engine: sa.Engine, moment: str, seed: int) -> None:
    """Under one id, or one key. Which one depends on the outage, as the message is sent again as a whole."""
    random = Random(f"{moment} {seed}")
    calls: list[Any] = []
    for number in range(4):
        one = entry(random, b"one")
        key = f"order {number}"
        other = [*one[:4], pack_items([b"two"]), *one[5:]]
        calls += [one, other, one, keyed(key, b"one"), keyed(key, b"two"), keyed(key, b"one")]
    random.shuffle(calls)
    answers, rows = await carried_out([calls], engine, (0, OUTAGES[moment](Faults(engine))))
    receipts: dict[object, set[tuple[object, bytes]]] = defaultdict(set)
    refused: dict[object, set[bytes]] = defaultdict(set)
    for call, answer in zip(calls, answers, strict=True):
        name = call[0] or call[5][1]
        if isinstance(answer, dict):
            assert answer["refused"], answer
            refused[name].add(call[4])
        else:
            receipts[name].add((told(answer), call[4]))
    assert len(receipts) == len(rows[0]) == 8
    for name, found in receipts.items():
        ((_, data),) = found
        assert refused[name] == {pack_items([b"one"]), pack_items([b"two"])} - {data}
    kept = {row["position"]: row["id"].bytes for row in rows[0]}
    assert kept == {receipt[1]: receipt[0] for found in receipts.values() for receipt, _ in found}  # type: ignore[index]
