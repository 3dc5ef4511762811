"""The life cycles, as tables."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from xbus import states as module
from xbus.admin.output import COLOURS
from xbus.monitor.rendering import tone
from xbus.states import (
    ATTEMPT_MOVES,
    BOT_RUN_MOVES,
    CONSUMER_MOVES,
    DELIVERY_MOVES,
    ENVELOPE_MOVES,
    ITEM_MOVES,
    RANGE_MOVES,
    REPLY_MOVES,
    TONE_OF,
    TRACKING_MOVES,
    AttemptState,
    BotRunState,
    ConsumerState,
    DeliveryState,
    EnvelopeState,
    IllegalMove,
    ItemState,
    RangeState,
    ReplyState,
    TrackingState,
    check_move,
    predecessors,
)

TABLES = [
    (EnvelopeState, ENVELOPE_MOVES),
    (DeliveryState, DELIVERY_MOVES),
    (AttemptState, ATTEMPT_MOVES),
    (ItemState, ITEM_MOVES),
    (ConsumerState, CONSUMER_MOVES),
    (ReplyState, REPLY_MOVES),
    (TrackingState, TRACKING_MOVES),
    (BotRunState, BOT_RUN_MOVES),
    (RangeState, RANGE_MOVES),
]


def test_no_table_is_left_out() -> None:
    assert [moves for _, moves in TABLES] == [table for name, table in vars(module).items() if name.endswith("_MOVES")]


@pytest.mark.parametrize(("states", "moves"), TABLES)
def test_each_state_has_its_line(states: type[StrEnum], moves: Mapping[Any, frozenset[Any]]) -> None:
    assert set(moves) == set(states)
    assert frozenset().union(*moves.values()) <= set(states)


@pytest.mark.parametrize(("states", "moves"), TABLES)
def test_the_table_decides(states: type[StrEnum], moves: Mapping[Any, frozenset[Any]]) -> None:
    for old in states:
        for new in states:
            assert (old in predecessors(moves, new)) == (new in moves[old])
            if new in moves[old]:
                check_move(moves, old, new)
            else:
                with pytest.raises(IllegalMove, match=f"from {old} to {new}"):
                    check_move(moves, old, new)


def test_what_is_sealed_or_cancelled_never_changes() -> None:
    assert ENVELOPE_MOVES[EnvelopeState.RECEIVED] == frozenset()
    assert ENVELOPE_MOVES[EnvelopeState.CANCELLED] == frozenset()


def test_a_parked_delivery_comes_again_on_its_own_or_as_another_envelope() -> None:
    assert DELIVERY_MOVES[DeliveryState.PARKED] == {DeliveryState.RETRY, DeliveryState.HELD, DeliveryState.SETTLED}


def test_nothing_follows_a_settled_delivery() -> None:
    assert DELIVERY_MOVES[DeliveryState.SETTLED] == frozenset()


def test_an_attempt_that_is_over_never_serves_again() -> None:
    assert ATTEMPT_MOVES[AttemptState.FAILED] == frozenset()
    assert ATTEMPT_MOVES[AttemptState.ABANDONED] == frozenset()
    assert predecessors(ATTEMPT_MOVES, AttemptState.READY) == {AttemptState.BUILDING}


def test_a_person_decides_once_on_a_parked_item() -> None:
    assert ITEM_MOVES[ItemState.RESUMED] == frozenset()
    assert ITEM_MOVES[ItemState.DROPPED] == frozenset()


def test_a_delivery_that_waits_for_one_worker_may_come_to_wait_for_another() -> None:
    check_move(DELIVERY_MOVES, DeliveryState.WAITING, DeliveryState.WAITING)


def test_a_recipient_replaces_another_only_when_that_has_gone() -> None:
    served = {ConsumerState.READING, ConsumerState.SLOW, ConsumerState.TRIPPED, ConsumerState.PAUSED}
    assert predecessors(CONSUMER_MOVES, ConsumerState.LEAVING) == served
    assert predecessors(CONSUMER_MOVES, ConsumerState.ABSENT) == {ConsumerState.LEAVING}


def test_only_who_reads_with_others_becomes_slow() -> None:
    assert predecessors(CONSUMER_MOVES, ConsumerState.SLOW) == {ConsumerState.READING}


def test_the_first_reply_stands() -> None:
    assert predecessors(REPLY_MOVES, ReplyState.ASKED).isdisjoint({ReplyState.HELD, ReplyState.GIVEN})


def test_what_was_split_or_merged_is_read_no_more() -> None:
    assert RANGE_MOVES[RangeState.COMPLETED] == frozenset()
    assert RangeState.COMPLETED in RANGE_MOVES[RangeState.OUT]


def test_terminal_and_pages_show_a_state_alike() -> None:
    assert [(tone(word), COLOURS[TONE_OF[word]]) for word in ("expired", "new", "cleared")] == [
        ("bad", "red"),
        ("busy", "yellow"),
        ("good", "green"),
    ]
