"""Times beyond all dates stand for ever."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from tests.support.clock import StandingClock
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.progress.retry_policy import RetryPolicy, RetrySchedule
from xbus.broker.back.readers import FailingBatches
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.writes.bulk import RenewAttempt
from xbus.clock import LONGEST_SPAN
from xbus.config import BackSettings

SECONDS = 1e12
CLOCK = StandingClock()
FOR_EVER = CLOCK.now() + LONGEST_SPAN


def test_a_delivery() -> None:
    policy = RetryPolicy(first_delay=SECONDS, longest_delay=SECONDS)
    recipient: Any = SimpleNamespace(role=SimpleNamespace(id=1, retry=RetrySettings()))
    assert RetrySchedule(policy, Mock(), CLOCK, Random(1)).after_attempts(recipient, 1) == FOR_EVER


def test_a_batch() -> None:
    failing = FailingBatches(BackSettings(first_delay=SECONDS, longest_delay=SECONDS), CLOCK, Random(1))
    entry: Any = SimpleNamespace(retry=RetrySettings())
    current: Any = SimpleNamespace(id=1, attempts=0, batch_begin=1)
    assert failing.failed(entry, current, "refused").retry_at == FOR_EVER


async def test_an_output() -> None:
    journal = Mock()
    journal.write.return_value = asyncio.get_running_loop().create_future()
    OutputAttempts(journal, Mock(), CLOCK, Random(1), SECONDS).renew(Mock(), 0.5)
    written: RenewAttempt = journal.write.call_args.args[0]
    assert written.lease_until == FOR_EVER
