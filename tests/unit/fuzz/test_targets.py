"""The targets of ``make fuzz`` pass some random tapes, and notice what is wrong."""

import random

import pytest

from tests.fuzz import codec
from tests.fuzz.front import FuzzedFront
from xbus.broker.sessions import Sessions


@pytest.mark.parametrize("seed", range(3))
def test_what_decodes_refuses_or_decodes(seed: int) -> None:
    random_bytes = random.Random(seed)
    for _ in range(2_000):
        codec.judge(random_bytes.randbytes(random_bytes.randrange(100)))


@pytest.mark.parametrize("seed", range(3))
def test_the_front_answers_each_call_as_it_deserves(seed: int) -> None:
    random_bytes = random.Random(seed)
    with FuzzedFront() as front:
        for _ in range(60):
            front.judge(random_bytes.randbytes(random_bytes.randrange(400)))
        assert front.calls > 100


def test_an_answer_to_a_stranger_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "owner", lambda self, token: 1)
    monkeypatch.setattr(Sessions, "knows", lambda self, token: True)
    random_bytes = random.Random(1)
    with pytest.raises(AssertionError, match="not logged in"), FuzzedFront() as front:
        for _ in range(200):
            front.judge(random_bytes.randbytes(100))


def test_two_decoders_that_disagree_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "largest_item", lambda data, items: 7)
    random_bytes = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(500):
            codec.judge(random_bytes.randbytes(20))
