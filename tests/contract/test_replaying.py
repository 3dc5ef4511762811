"""A replay goes page by page: broken off, overtaken or refused on its way it leaves whole pages, and nothing twice."""

import asyncio
from collections import Counter

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, looking
from xbus import model
from xbus.admin.replay import ReplayRequest, preview, send_again
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration.detaching import detach
from xbus.broker.journal.replay import PAGE_ENVELOPES
from xbus.clock import SystemClock
from xbus.errors import Refused

ENVELOPES = 2 * PAGE_ENVELOPES + 50
ADA = RepairDecision("ada", "", NOW)
WANTED = ReplayRequest("notes", "store_1", 0, ENVELOPES)


class BrokenOff(Exception):
    """The operator gave up."""


@pytest.fixture
async def url(shared_url: str, shared_scribe: Scribe) -> str:
    """A journal with more envelopes than two pages hold."""
    await asyncio.gather(*(shared_scribe.put([b"x"]) for _ in range(ENVELOPES)))
    return shared_url


def sent(url: str) -> Counter[object]:
    """How often each envelope was sent again."""
    with looking(url) as connection:
        origins = connection.execute(sa.select(model.envelope.c.origin_id).where(model.envelope.c.position > ENVELOPES))
        return Counter(origins.scalars())


def send(url: str, on_envelopes: object = None) -> int:
    pages: list[int] = []
    return send_again(url, WANTED, ADA, SystemClock(), on_envelopes or pages.append).envelopes  # type: ignore[arg-type]


async def test_one_that_is_broken_off_is_gone_on_with(url: str) -> None:
    def break_off(envelopes: int) -> None:
        raise BrokenOff

    with pytest.raises(BrokenOff):
        await asyncio.to_thread(send, url, break_off)
    assert len(sent(url)) == PAGE_ENVELOPES
    found = await asyncio.to_thread(preview, url, WANTED)
    assert (found.envelopes, found.items, found.sent) == (ENVELOPES - PAGE_ENVELOPES,) * 2 + (PAGE_ENVELOPES,)
    assert found.first is not None
    assert found.last is not None
    assert (found.first.position, found.last.position) == (PAGE_ENVELOPES + 1, ENVELOPES)
    assert await asyncio.to_thread(send, url) == ENVELOPES - PAGE_ENVELOPES
    assert set(sent(url).values()) == {1}
    assert len(sent(url)) == ENVELOPES
    assert await asyncio.to_thread(send, url) == 0
    with looking(url) as connection:
        kept = connection.execute(sa.select(model.history.c.reason).where(model.history.c.move == "replayed")).scalars()
        assert kept.all() == [f'positions 1 to {ENVELOPES} of type "notes", by ada'] * 2


async def test_two_at_once_share_the_work(url: str) -> None:
    both = await asyncio.gather(asyncio.to_thread(send, url), asyncio.to_thread(send, url))
    assert sum(both) == ENVELOPES
    assert set(sent(url).values()) == {1}


async def test_it_ends_where_its_role_is_owed_nothing_any_more(url: str) -> None:
    def take_off(envelopes: int) -> None:
        with looking(url) as connection:
            detach(connection, "store_1", "gone", NOW)

    with pytest.raises(Refused) as refusal:
        await asyncio.to_thread(send, url, take_off)
    assert refusal.value.code == "role_detached"
    assert len(sent(url)) == PAGE_ENVELOPES
