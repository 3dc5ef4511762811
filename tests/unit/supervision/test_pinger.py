"""Rounds of pings, with recipients that answer as the test says."""

import asyncio

from xbus.ids import Ids
from xbus.supervision.pinger import Pinger


class Pinged:
    """Answers pings, or not."""

    def __init__(self, answers: bool = True) -> None:
        self.answers = answers
        self.texts: list[str] = []
        self.silence = 60.0

    def silent_for(self) -> float:
        return self.silence

    async def ping(self, text: str, seconds: float) -> bool:
        self.texts.append(text)
        return self.answers


class AnswersLate(Pinged):
    """Its answer is read in the turn of the loop that follows the end of the time."""

    async def ping(self, text: str, seconds: float) -> bool:
        asyncio.get_running_loop().call_soon(setattr, self, "silence", 0.0)
        return await super().ping(text, seconds)


class Register:
    """Who is there, and who was given up."""

    def __init__(self, *present: Pinged) -> None:
        self.present = list(present)
        self.given_up: list[tuple[Pinged, str]] = []
        self.pinger: Pinger[Pinged] = Pinger(
            lambda: list(self.present), self._give_up, Ids(), interval=5, timeout=1, misses=2
        )

    async def _give_up(self, pinged: Pinged, reason: str) -> None:
        self.present.remove(pinged)
        self.given_up.append((pinged, reason))


async def test_one_that_answers_stays() -> None:
    register = Register(Pinged())
    for _ in range(5):
        await register.pinger.ping_all()
    assert register.given_up == []


async def test_one_that_does_not_answer_is_given_up_with_a_reason() -> None:
    silent, lively = Pinged(answers=False), Pinged()
    register = Register(silent, lively)
    await register.pinger.ping_all()
    assert register.given_up == []
    await register.pinger.ping_all()
    assert register.given_up == [(silent, "it did not answer 2 pings in a row")]
    assert register.present == [lively]


async def test_an_answer_that_is_read_too_late_is_a_sign_of_life() -> None:
    """The machine was so busy that the time ran out before this process read its sockets."""
    late = AnswersLate(answers=False)
    register = Register(late)
    for _ in range(5):
        late.silence = 60.0
        await register.pinger.ping_all()
    assert register.given_up == []


async def test_misses_must_come_in_a_row() -> None:
    hesitant = Pinged()
    register = Register(hesitant)
    for answers in (False, True, False, True, False):
        hesitant.answers = answers
        await register.pinger.ping_all()
    assert register.given_up == []


async def test_one_that_comes_back_starts_anew() -> None:
    register = Register(Pinged(answers=False))
    for _ in range(2):
        await register.pinger.ping_all()
    newcomer = Pinged(answers=False)
    register.present.append(newcomer)
    await register.pinger.ping_all()
    assert newcomer in register.present


async def test_each_ping_has_its_own_text() -> None:
    """So no old answer passes for a new one."""
    pinged = Pinged()
    register = Register(pinged)
    for _ in range(3):
        await register.pinger.ping_all()
    assert len(set(pinged.texts)) == 3


async def test_one_that_gave_a_sign_of_life_is_not_asked_for_one() -> None:
    lively = Pinged(answers=False)
    register = Register(lively)
    await register.pinger.ping_all()
    assert register.pinger.is_silent(lively)
    lively.silence = 2
    for _ in range(5):
        await register.pinger.ping_all()
    assert len(lively.texts) == 1
    assert not register.pinger.is_silent(lively)
    assert register.given_up == []


async def test_nobody_there() -> None:
    await Register().pinger.ping_all()
