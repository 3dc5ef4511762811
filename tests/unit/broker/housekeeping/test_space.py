"""What may come in, by how much the journal holds."""

from typing import Any, cast

import pytest

from tests.support.clock import StandingClock
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed
from xbus.supervision.health import Health


class Holding:
    """A journal that holds so much."""

    def __init__(self) -> None:
        self.elsewhere = 0
        self.stored_bytes = 0
        self.pending_bytes = 0

    async def read(self, _: Any) -> int:
        return self.elsewhere + self.stored_bytes


@pytest.fixture
def holding() -> Holding:
    return Holding()


@pytest.fixture
def health() -> Health:
    return Health("front", StandingClock())


@pytest.fixture
def space(holding: Holding, health: Health) -> Space:
    return Space(cast(Journal, holding), 1000, health)


def refused(check: Any) -> bool:
    try:
        check()
    except Failed as refusal:
        assert refusal.code == "journal_full"
        assert "1000" in refusal.cause or "1100" in refusal.cause
        return True
    return False


async def test_what_comes_back_leaves_a_tenth_to_what_is_sent(space: Space, holding: Holding) -> None:
    holding.elsewhere = 400
    await space.refresh()
    assert not refused(lambda: space.check_back(500))

    with pytest.raises(Failed) as caught:
        space.check_back(501)

    assert caught.value.code == "journal_full"
    assert not refused(space.check_new)


async def test_new_envelopes_up_to_the_limit_and_open_ones_a_tenth_beyond(space: Space, holding: Holding) -> None:
    holding.elsewhere = 400
    await space.refresh()
    holding.stored_bytes = 500
    for pending, new_refused, more_refused in ((100, False, False), (101, True, False), (200, True, False)):
        holding.pending_bytes = pending
        assert (refused(space.check_new), refused(space.check_more)) == (new_refused, more_refused)
    holding.pending_bytes = 201
    assert refused(space.check_new)
    assert refused(space.check_more)


async def test_it_opens_again_a_little_below_the_limit(space: Space, holding: Holding, health: Health) -> None:
    for held, new_refused in ((1001, True), (990, True), (951, True), (950, False), (990, False)):
        holding.elsewhere = held
        await space.refresh()
        assert refused(space.check_new) is new_refused
        assert [problem.code for problem in health.problems] == ["journal_full"] * new_refused


FLOODS, SENDS_LITTLE = 1, 2


async def test_an_emitter_that_fills_the_journal_is_refused_before_others(
    space: Space, holding: Holding, health: Health
) -> None:
    def taken(emitter_id: int, count: int) -> int:
        for number in range(count):
            if refused(space.check_new) or refused(lambda: space.take(emitter_id, 1)):
                return number
            holding.stored_bytes += 1
        return count

    holding.elsewhere = 951
    await space.refresh()
    assert 0 < taken(FLOODS, 100) < 50
    assert [problem.code for problem in health.problems] == ["journal_full"]
    assert taken(SENDS_LITTLE, 10) == 10
    assert taken(FLOODS, 1) == 0


async def test_when_space_returns_the_emitter_that_filled_it_goes_on(
    space: Space, holding: Holding, health: Health
) -> None:
    holding.elsewhere = 960
    await space.refresh()
    space.take(FLOODS, 100)
    assert refused(lambda: space.take(FLOODS, 1))
    holding.elsewhere = 900
    await space.refresh()
    assert health.healthy
    holding.elsewhere = 960
    await space.refresh()
    assert not refused(lambda: space.take(FLOODS, 1))


async def test_without_a_limit_all_may_come(holding: Holding, health: Health) -> None:
    space = Space(cast(Journal, holding), 0, health)
    holding.elsewhere = 2**60
    await space.refresh()
    assert health.healthy
    space.check_new()
    space.check_more()
    space.take(FLOODS, 2**60)
    await space.watch()
