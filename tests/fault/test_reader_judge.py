"""The judge of the trial of readers finds each promise that is broken; pure."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.fault.reading.judge import Handed, ReaderHistory, Ruling, judge, read_handed

FIRST = Handed(1, 1.0, 1, 1, "1", "4", False, (("a", 1), ("b", 2), ("a", 3)), 1.5, "settled")
SECOND = Handed(2, 2.0, 1, 2, "4", "6", False, (("a", 4), ("b", 5)), 2.5, "settled")
SENT = {"a": [1, 3, 4], "b": [2, 5]}


def ruling(*handed: Handed, settled: str = "12345") -> Ruling:
    return judge(ReaderHistory(SENT, handed, Counter(map(int, settled))))


def test_a_reader_that_keeps_its_promises_is_acquitted() -> None:
    died = replace(FIRST, settling_at=None, fate="")
    again = replace(FIRST, at=1.8, counter=2, is_repeated=True)
    halves = [
        replace(again, range=2, events=(("a", 1), ("a", 3))),
        replace(again, range=3, events=(("b", 2),)),
    ]
    late = replace(FIRST, settling_at=1.9, fate="lost")
    for handed in ([FIRST, SECOND], [died, again, replace(SECOND, counter=3)], [late, again, SECOND]):
        assert ruling(*handed).violations == []
    assert ruling(late, again, SECOND).late == 1
    assert ruling(died, again, SECOND).repeats == 1
    rest = [replace(SECOND, range=2, events=(("a", 4),)), replace(SECOND, range=3, events=(("b", 5),))]
    assert ruling(died, *halves, *rest).violations == []


@pytest.mark.parametrize(
    ("handed", "settled", "violation"),
    [
        ([FIRST], "123", "a: [1, 3, 4] were sent, and for the first time came [1, 3]"),
        ([SECOND], "12345", "b: [2, 5] were sent, and for the first time came [5]"),
        ([FIRST, SECOND], "1234", "b: batch 4 to 6 of range 1, counter 2, at 2.00 was never settled"),
        ([FIRST, SECOND], "112345", "position 1 was settled 2 times"),
        ([replace(FIRST, fate=""), SECOND], "145", "batch 1 to 4 of range 1, counter 1, at 1.00 is not settled"),
        ([FIRST, replace(FIRST, counter=2, is_repeated=True), SECOND], "12345", "a came again after it was settled"),
        ([FIRST, replace(FIRST, counter=2), SECOND], "12345", "it came again, and is not called repeated"),
        ([replace(FIRST, events=(("b", 2), ("a", 1), ("a", 3))), SECOND], "12345", "are in no order"),
        (
            [replace(FIRST, settling_at=3.0), replace(FIRST, counter=2, is_repeated=True), SECOND],
            "12345",
            "its late checkpoint was accepted",
        ),
        (
            [replace(FIRST, fate=""), replace(FIRST, counter=2, is_repeated=True, events=(("a", 1),)), SECOND],
            "145",
            "it came, and batch 1 to 4 of range 1, counter 1, at 1.00 is not settled",
        ),
    ],
)
def test_each_broken_promise_is_found(handed: list[Handed], settled: str, violation: str) -> None:
    found = ruling(*handed, settled=settled).violations
    assert any(violation in each for each in found), found


def test_the_lines_of_a_program_tell_what_became_of_each_batch() -> None:
    got = {"what": "got", "at": 1.0, "range": 1, "counter": 1, "begin": "1", "end": "2", "repeated": False}
    got["events"] = [["a", 1]]
    said = [got, {"what": "settling", "at": 1.5}, {**got, "at": 2.0}, {"what": "lost", "at": 2.5}, {**got, "at": 3.0}]
    handed = read_handed(1, said)
    assert [(each.fate, each.settling_at) for each in handed] == [("settled", 1.5), ("lost", None), ("", None)]
