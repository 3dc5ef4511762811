"""What is done again and again, over a clock that only notes."""

import pytest

from xbus.periodic import after_every, every


class Enough(Exception):
    """Ends a loop."""


class Diary:
    """Notes work and pauses, and ends the loop at the third pause."""

    def __init__(self) -> None:
        self.notes: list[object] = []

    async def work(self) -> None:
        self.notes.append("work")

    async def pause(self, seconds: float) -> None:
        self.notes.append(seconds)
        if self.notes.count(seconds) == 3:
            raise Enough


async def test_it_is_done_at_once_and_after_each_pause() -> None:
    diary = Diary()
    with pytest.raises(Enough):
        await every(7, diary.work, pause=diary.pause)
    assert diary.notes == ["work", 7, "work", 7, "work", 7]


async def test_it_is_done_after_the_first_pause() -> None:
    diary = Diary()
    with pytest.raises(Enough):
        await after_every(7, diary.work, pause=diary.pause)
    assert diary.notes == [7, "work", 7, "work", 7]


async def test_an_error_ends_the_loop() -> None:
    async def fail() -> None:
        raise Enough

    with pytest.raises(Enough):
        await every(7, fail)
