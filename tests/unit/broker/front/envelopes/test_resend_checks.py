"""What is in doubt of an envelope that is sent again, without an envelope."""

import asyncio
import gc

import pytest

from xbus.broker.front.envelopes.resend_checks import ResendChecks
from xbus.errors import JournalUnavailable, Refused, XbusError


class Batch:
    """Stands for items that are compared."""


async def compare(batch: Batch, error: XbusError) -> int:
    await asyncio.sleep(0)
    raise error


async def failed(made: ResendChecks, what: object, error: XbusError) -> None:
    comparing = asyncio.ensure_future(compare(Batch(), error))
    made.add(what, comparing)
    await asyncio.wait([comparing])


@pytest.mark.parametrize("error", [JournalUnavailable("it is away"), Refused("other content", code="content_differs")])
async def test_what_was_compared_is_not_kept(error: XbusError) -> None:
    made = ResendChecks(most_apart=5)
    for number in range(20):
        await failed(made, number, type(error)(error.cause, code=error.code))
    assert made.pending == []
    with pytest.raises(type(error), match=error.cause) as caught:
        made.check()
    assert caught.value.code == error.code

    gc.collect()
    assert not [kept for kept in gc.get_objects() if isinstance(kept, Batch)]
    assert len(made._doubts) <= 6


async def test_what_is_refused_stays_so_until_a_session_begins_anew() -> None:
    made = ResendChecks()
    await failed(made, "batch", Refused("other content", code="content_differs"))
    agreeing = asyncio.get_running_loop().create_future()
    made.add("batch", agreeing)
    assert made.pending == [agreeing]
    agreeing.set_result(1)
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="other content"):
        made.check()

    made.begin_anew()
    made.check()
