"""Connections that call at the same time share the server; one that calls alone has it for itself."""

from collections.abc import Iterator

from xbus.rpc.answering import Call
from xbus.rpc.rests import Rests
from xbus.rpc.server import CALL_BYTES, PERIOD_SECONDS, SHARE_BYTES, WAITING_BYTES_OF_ONE, Turns

DEEP, HONEST, OTHER = b"deep", b"honest", b"other"

SHARE = SHARE_BYTES // CALL_BYTES
"""The small calls of a connection that may be under way while others call."""


class Calls:
    """Calls of some connections, and the time; what may be carried out is under way until it is answered."""

    def __init__(self, **options: int) -> None:
        self.now = 10.4 * PERIOD_SECONDS
        self.rests = Rests(lambda: self.now)
        self.turns = Turns(lambda: self.now, **{"share_bytes": SHARE_BYTES, **options}, rests=self.rests)
        self.under_way: list[Call] = []
        self._made: list[Call] = []

    def call(self, peer: bytes, count: int = 1, size: int = 0) -> None:
        for _ in range(count):
            call = Call(peer, [], size)
            self._made.append(call)
            if self.turns.add([call]):
                self._begin(call)

    def answer(self, peer: bytes, count: int = 1) -> None:
        mine = [call for call in self.under_way if call.peer == peer][:count]
        for call in mine:
            self.under_way.remove(call)
            self.turns.ended(call)

    def rest(self, peer: bytes, seconds: float) -> None:
        """Have a connection rest whose calls wait, beside short calls of another one."""
        self.rests.note_long(peer)
        self.rests.note_short(HONEST, HONEST)
        (share,) = [share for share in self.turns.line if share.peer == peer]
        share.rests_until = self.now + seconds

    def go_on(self) -> list[bytes]:
        return [call.peer for call in self._go_on()]

    def numbers(self, peer: bytes) -> list[int]:
        return [self._made.index(call) for call in self.under_way if call.peer == peer]

    def wait(self, periods: float) -> None:
        self.now += periods * PERIOD_SECONDS

    def _go_on(self) -> Iterator[Call]:
        while (call := self.turns.next()) is not None:
            self._begin(call)
            yield call

    def _begin(self, call: Call) -> None:
        call.since = self.now
        self.under_way.append(call)


def test_who_calls_alone_has_many_calls_under_way() -> None:
    calls = Calls()
    calls.call(DEEP, 100)
    assert len(calls.numbers(DEEP)) == 100
    assert not calls.turns.line


def test_calls_that_are_answered_at_once_take_nobodys_turn() -> None:
    calls = Calls()
    calls.call(HONEST)
    for _ in range(10):
        call = Call(DEEP, [], 2 * SHARE_BYTES)
        assert calls.turns.add([call])
        calls.turns.ended(call)


def test_beside_another_connection_the_calls_beyond_the_share_wait_in_their_order() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 100)
    assert calls.numbers(DEEP) == list(range(1, 1 + SHARE))
    assert calls.go_on() == []
    calls.answer(DEEP)
    assert calls.go_on() == [DEEP]
    assert calls.numbers(DEEP) == list(range(2, 2 + SHARE))


def test_a_newcomer_is_carried_out_at_once() -> None:
    calls = Calls()
    calls.call(DEEP, 1000)
    calls.call(HONEST)
    assert calls.numbers(HONEST)
    calls.call(DEEP)
    calls.answer(DEEP, 10)
    assert calls.go_on() == []


def test_one_call_is_always_carried_out_however_large() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 2, size=2 * SHARE_BYTES)
    assert len(calls.numbers(DEEP)) == 1
    calls.answer(DEEP)
    calls.wait(1)
    assert calls.go_on() == [DEEP]


def test_when_the_other_calls_no_more_all_that_waits_goes_on() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 50)
    calls.wait(2)
    assert calls.go_on() == [DEEP] * (50 - SHARE)


def test_where_all_have_calls_waiting_nobody_is_held_back() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 20)
    calls.call(HONEST, 20)
    went = calls.go_on()
    assert went[:4] == [DEEP, HONEST, DEEP, HONEST]
    assert len(went) > 10 * SHARE


def test_calls_under_way_for_long_wait_for_something_else_and_hold_nothing_back() -> None:
    calls = Calls()
    calls.call(DEEP, SHARE + 2)
    calls.call(OTHER)
    calls.call(DEEP, 5)
    assert calls.turns.line
    calls.wait(1)
    calls.call(OTHER)
    assert calls.go_on() == []
    calls.wait(1)
    calls.call(OTHER)
    assert calls.go_on() == [DEEP] * SHARE


def test_an_answer_that_comes_late_is_not_counted_twice() -> None:
    calls = Calls()
    calls.call(DEEP, SHARE)
    calls.wait(5)
    calls.call(OTHER)
    calls.answer(DEEP, SHARE)
    calls.call(DEEP, SHARE + 1)
    assert len(calls.numbers(DEEP)) == SHARE


def test_what_waits_is_bounded() -> None:
    calls = Calls(waiting_bytes=10_000)
    calls.call(HONEST)
    calls.call(DEEP, SHARE)
    calls.call(DEEP, 10)
    before = calls.turns.is_full
    calls.call(DEEP, 10)
    assert (before, calls.turns.is_full) == (False, True)
    assert [call.peer for call in calls.turns.rest()] == [DEEP] * 20
    assert not calls.turns.line


def test_a_connection_that_rests_has_its_calls_wait_in_their_order() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 2, size=3 * SHARE_BYTES)
    calls.answer(DEEP)
    calls.rest(DEEP, seconds=0.02)
    assert calls.go_on() == []
    calls.call(DEEP)
    calls.now += 0.01
    calls.call(HONEST)
    assert calls.go_on() == []
    calls.now += 0.01
    assert calls.go_on() == [DEEP]
    assert calls.numbers(DEEP) == [2]


def test_a_newcomer_does_not_wait_for_the_rest_of_another() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 2, size=3 * SHARE_BYTES)
    calls.answer(DEEP)
    calls.rest(DEEP, seconds=0.02)
    calls.call(OTHER)
    assert calls.numbers(OTHER)


def test_a_rest_ends_when_the_others_call_no_more() -> None:
    calls = Calls()
    calls.call(HONEST)
    calls.call(DEEP, 2, size=3 * SHARE_BYTES)
    calls.answer(DEEP)
    calls.rest(DEEP, seconds=1.0)
    calls.now += 0.06
    assert calls.go_on() == [DEEP]


def test_who_calls_alone_pays_nothing() -> None:
    calls = Calls()
    calls.call(DEEP, 3, size=3 * SHARE_BYTES)
    assert calls.numbers(DEEP) == [0, 1, 2]


def test_who_sends_calls_ahead_fills_its_own_room_alone() -> None:
    calls = Calls()
    calls.call(HONEST)
    size = WAITING_BYTES_OF_ONE // 10
    while calls.turns.has_room_for(DEEP):
        calls.call(DEEP, size=size)
    assert calls.turns.has_room_for(HONEST)
    assert not calls.turns.is_full
    assert not calls.turns.take_new_room()
    # The other calls no more, so that it has all turns.
    calls.wait(2)
    calls.go_on()
    assert calls.turns.has_room_for(DEEP)
    assert (calls.turns.take_new_room(), calls.turns.take_new_room()) == (True, False)
