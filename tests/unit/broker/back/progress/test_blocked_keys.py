"""Which envelopes wait for others of their key, as it follows from the rows that there are."""

import uuid
from dataclasses import replace

import pytest

from tests.support.delivering import consumer_roles
from xbus.broker.back.progress.blocked_keys import BlockedKeys, First
from xbus.broker.journal.log.reading import HeldKey, LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.envelope import EnvelopeHead
from xbus.states import DeliveryState

ROLE, OTHER_ROLE = 7, 8
HELD, RETRY, PARKED, SETTLED, WAITING = (
    DeliveryState.HELD,
    DeliveryState.RETRY,
    DeliveryState.PARKED,
    DeliveryState.SETTLED,
    DeliveryState.WAITING,
)


@pytest.fixture
def order() -> BlockedKeys:
    order = BlockedKeys(ROLE)
    order.want(True)
    return order


def envelope(position: int, key: str | None = "a") -> LogEnvelope:
    return LogEnvelope(uuid.UUID(int=position).bytes, position, (), (), head=EnvelopeHead(key))


def row(position: int, state: DeliveryState, key: str | None = "a", role_id: int = ROLE) -> DeliveryRow:
    return DeliveryRow(role_id, uuid.UUID(int=position), position, state, 1, "lost", "it left", ordering_key=key)


def to_read(order: BlockedKeys) -> list[tuple[str, int]]:
    return [(asked.ordering_key, asked.lowest) for asked in order.to_read()]


@pytest.mark.parametrize("state", [HELD, RETRY, WAITING, PARKED])
def test_a_key_that_has_a_row_holds_only_itself(order: BlockedKeys, state: DeliveryState) -> None:
    order.note(row(3, state))
    assert order.blocks(envelope(4))
    assert not order.blocks(envelope(4, "b"))
    assert not order.blocks(envelope(4, None))


def test_no_key_is_a_key_like_any_other(order: BlockedKeys) -> None:
    assert order.key(envelope(1, None)) == ""
    order.note(row(3, PARKED, ""))
    assert order.blocks(envelope(4, None))
    assert not order.blocks(envelope(4, "a"))


def test_who_wants_no_order_has_no_keys() -> None:
    order = BlockedKeys(ROLE)
    assert order.key(envelope(1)) is None
    order.note(row(3, PARKED, None))
    order.add(HeldKey(ROLE, "a", 1, 1))
    assert not order.blocks(envelope(4))


def test_what_is_settled_lets_the_next_one_of_its_key_go(order: BlockedKeys) -> None:
    order.note(row(3, RETRY))
    order.note(row(5, HELD))
    order.note(row(6, HELD))
    assert order.is_next(row(3, RETRY))
    assert not order.is_next(row(5, HELD))
    assert to_read(order) == []
    order.note(row(3, SETTLED))
    assert to_read(order) == [("a", 4)]
    assert order.is_next(row(5, HELD))
    order.found(order.to_read()[0], row(5, HELD))
    assert to_read(order) == [("a", 5)]
    assert not order.is_next(row(6, HELD))
    order.note(row(5, RETRY))
    assert to_read(order) == []
    assert order.blocks(envelope(9))
    order.note(row(5, SETTLED))
    order.note(row(6, RETRY))
    order.note(row(6, SETTLED))
    assert not order.blocks(envelope(9))
    assert to_read(order) == []


def test_what_fails_again_goes_before_what_it_held(order: BlockedKeys) -> None:
    order.note(row(3, RETRY))
    order.note(row(5, HELD))
    order.note(row(3, PARKED))
    assert order.firsts(First.PARKED) == [3]
    assert not order.is_next(row(5, HELD))


def test_an_earlier_one_that_fails_later_goes_first(order: BlockedKeys) -> None:
    order.note(row(5, WAITING))
    assert not order.blocks(envelope(4))
    order.note(row(4, RETRY))
    assert not order.is_next(row(5, WAITING))
    order.note(row(4, SETTLED))
    assert order.is_next(row(5, WAITING))


def test_rows_that_were_found_at_the_start_are_to_be_read(order: BlockedKeys) -> None:
    order.add(HeldKey(ROLE, "a", 3, 9))
    assert order.blocks(envelope(10))
    asked = order.to_read()
    assert asked == [HeldKey(ROLE, "a", 3, 9)]
    order.found(asked[0], row(3, RETRY))
    assert order.firsts(First.ON_ITS_OWN) == [3]


def test_a_key_whose_rows_have_all_gone_is_free(order: BlockedKeys) -> None:
    order.add(HeldKey(ROLE, "a", 3, 3))
    order.found(order.to_read()[0], None)
    assert not order.blocks(envelope(10))
    assert to_read(order) == []


def test_what_has_changed_since_it_was_read_is_read_again(order: BlockedKeys) -> None:
    order.add(HeldKey(ROLE, "a", 3, 3))
    asked = order.to_read()[0]
    order.note(row(4, HELD))
    order.found(asked, None)
    assert order.blocks(envelope(10))
    assert to_read(order) == [("a", 3)]


def test_a_parked_one_that_a_person_has_changed_is_read_again(order: BlockedKeys) -> None:
    order.note(row(3, PARKED))
    order.note(row(4, HELD))
    order.note(row(6, PARKED, "b"))
    order.check({3: PARKED, 6: PARKED})
    assert to_read(order) == []
    order.check({3: RETRY})
    assert to_read(order) == [("a", 3), ("b", 6)]


def test_one_that_waits_is_not_read_for_that(order: BlockedKeys) -> None:
    order.note(row(3, RETRY))
    order.check({3: RETRY})
    assert to_read(order) == []


def test_what_waits_for_an_absent_worker_is_not_asked_for(order: BlockedKeys) -> None:
    order.note(row(3, RETRY))
    order.note(replace(row(4, WAITING, "b"), service="names"))
    assert order.coming(()) == [3]
    assert order.coming(["names"]) == [3, 4]
    order.note(row(4, RETRY, "b"))
    assert order.coming(()) == [3, 4]


def test_a_role_that_wants_order_no_longer_holds_nothing(order: BlockedKeys) -> None:
    order.note(row(3, PARKED))
    assert not order.want(False)
    assert not order.blocks(envelope(4))
    assert order.want(True)
    assert not order.blocks(envelope(4))


def test_roles_that_want_order_are_told_apart() -> None:
    roles = consumer_roles()
    assert roles.want_order([ROLE]) == {ROLE}
    roles[ROLE].keys.note(row(3, PARKED))
    assert roles.want_order([ROLE, OTHER_ROLE]) == {OTHER_ROLE}
    assert roles[ROLE].keys.blocks(envelope(4))
    assert roles.want_order([OTHER_ROLE]) == set()
    assert not roles[ROLE].keys.is_wanted
