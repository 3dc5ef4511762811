"""Subscriptions whose gateways, broker and subscriber are killed at random, and the judge of that trial."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault.calling.judge import Call, judge_calls
from tests.fault.calling.trial import HttpTrial

STRIKES = 6

FIRST, SECOND = Call("msg_a", (1, 2)), Call("msg_b", (3,))


async def test_nothing_acknowledged_is_lost_and_the_same_batches_repeat(database_url: str, tmp_path: Path) -> None:
    trial = HttpTrial(database_url, tmp_path, seed=3)
    ruling = await trial.run(STRIKES)
    assert ruling.violations == []
    assert trial.acknowledged


def test_who_keeps_all_promises_is_acquitted() -> None:
    ruling = judge_calls([1, 2, 3], [FIRST, FIRST, SECOND, FIRST])
    assert (ruling.batches, ruling.repeats, ruling.violations) == (2, 2, [])


@pytest.mark.parametrize(
    ("calls", "violation"),
    [
        ([FIRST], "[3] were acknowledged, and never came"),
        ([FIRST, SECOND, Call("msg_c", (4,))], "[4] came, and nobody sent them"),
        ([FIRST, SECOND, Call("msg_c", (3,))], "[3] came in several batches"),
        ([FIRST, Call("msg_a", (1,)), SECOND], "msg_a came as [1, 2], then as [1]"),
        ([SECOND, FIRST], "batches came in another order than that of the log"),
    ],
)
def test_each_broken_promise_is_found(calls: Sequence[Call], violation: str) -> None:
    assert violation in judge_calls([1, 2, 3], calls).violations
