"""Ranges of the log are read to their end, also where the database goes away or something is removed meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid5

import pytest

from spark_worker.source.reading import resuming
from spark_worker.spark.patience import DatabasePatience, insist
from xbus.broker.journal.bulk.segment_reader import LoggedSegment
from xbus.broker.journal.log.planning import GONE, LogRange
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.codec import pack_items

ROOT = UUID(int=1)


def segment(position: int, first_index: int, items: int = 2) -> LoggedSegment:
    event_id = uuid5(ROOT, str(position))
    data = pack_items([b"x"] * items)
    return LoggedSegment(ROOT, event_id, position, "north", datetime(2020, 1, 1, tzinfo=UTC), first_index, items, data)


LOG = [segment(1, 0), segment(1, 2), segment(1, 4), segment(3, 0), segment(3, 2), segment(4, 0)]
ALL = LogRange(1, 0, 9, 12)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def patience(self, seconds: float) -> DatabasePatience:
        return DatabasePatience(seconds, self.sleep, lambda: self.time)


class Database:
    """A log that fails now and then.

    Args:
        failures: before which segment it fails in each read, and how; then it does not fail any more.
    """

    def __init__(self, failures: Sequence[tuple[int, JournalError]], log: Sequence[LoggedSegment] = LOG) -> None:
        self.log = list(log)
        self.asked: list[LogRange] = []
        self.on_failure: Callable[[], None] = lambda: None
        self._failures = list(failures)

    def read(self, wanted: LogRange) -> Iterator[LoggedSegment]:
        self.asked.append(wanted)
        failure = self._failures.pop(0) if self._failures else None
        found = [
            one
            for one in self.log
            if wanted.after < one.position <= wanted.until
            and (wanted.number is None or one.first_index >= wanted.first)
        ]
        for place, one in enumerate(found):
            if failure and place == failure[0]:
                self.on_failure()
                raise failure[1]
            yield one


AWAY = JournalUnavailable("away")
REMOVED = JournalError("removed", code=GONE)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("second", range(3))
def test_each_segment_comes_once_wherever_the_database_goes_away(place: int, second: int) -> None:
    database = Database([(place, AWAY), (0, AWAY), (second, AWAY)])
    assert list(resuming(ALL, database.read, Clock().patience(60))) == LOG


def test_what_was_read_is_not_asked_for_again() -> None:
    database = Database([(4, AWAY)])
    list(resuming(ALL, database.read, Clock().patience(60)))
    assert [wanted.after for wanted in database.asked] == [0, 2]


def test_a_part_of_an_event_goes_on_behind_the_last_segment() -> None:
    part = LogRange(1, 0, 1, 6, number=1, first=0, end=6)
    database = Database([(2, AWAY)], LOG[:3])
    assert list(resuming(part, database.read, Clock().patience(60))) == LOG[:3]
    assert [wanted.first for wanted in database.asked] == [0, 4]


def test_patience_ends() -> None:
    clock = Clock()
    database = Database([(0, AWAY)] * 1000)
    with pytest.raises(JournalUnavailable):
        list(resuming(ALL, database.read, clock.patience(60)))
    assert 60 <= clock.time <= 63


def test_patience_begins_anew_with_each_success() -> None:
    part = LogRange(1, 0, 1, 6, number=1, first=0, end=6)
    database = Database([(1, AWAY)] * 2, LOG[:3])
    assert list(resuming(part, database.read, Clock().patience(0.05))) == LOG[:3]


def test_removed_segments_are_an_error() -> None:
    with pytest.raises(JournalError, match="removed"):
        list(resuming(ALL, Database([(2, REMOVED)]).read, Clock().patience(60)))


def test_the_rest_is_read_without_what_was_removed_where_that_is_wanted() -> None:
    database = Database([(2, REMOVED)])
    database.on_failure = lambda: database.log.__setitem__(slice(0, 3), [])
    found = list(resuming(ALL, database.read, Clock().patience(60), fail_on_data_loss=False))
    assert found == [*LOG[:2], *LOG[3:]]


def test_a_question_is_asked_again_while_the_database_is_away() -> None:
    answers = iter([AWAY, AWAY, 7])

    def question() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert insist(Clock().patience(10), question) == 7
