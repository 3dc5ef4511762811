"""Identifiers and tokens, with time and chance handed in."""

import hashlib
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from xbus.ids import Ids, parse_uuid, token_hash


class StandingClock:
    """Shows one moment until it is moved."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()


NOON = datetime(2020, 2, 29, 12, 0, tzinfo=UTC)


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = Ids(StandingClock(NOON), lambda size: b"\xff" * size).new()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int(NOON.timestamp() * 1000)


def test_the_same_clock_and_chance_make_the_same_ids() -> None:
    first, second = (Ids(StandingClock(NOON), lambda size: b"\x07" * size) for _ in range(2))
    assert first.new() == second.new()
    assert first.token() == second.token()


def test_later_ids_sort_later() -> None:
    clock = StandingClock(NOON)
    ids = Ids(clock, lambda size: b"\xff" * size)
    earlier = ids.new()
    clock.moment += timedelta(milliseconds=1)
    later = Ids(clock, lambda size: b"\0" * size).new()
    assert earlier < later
    assert str(earlier) < str(later)


@settings(deadline=None)
@given(st.binary(min_size=10, max_size=10))
def test_any_chance_makes_a_legal_id(chance: bytes) -> None:
    made = Ids(StandingClock(NOON), lambda size: chance[:size]).new()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_a_token_has_256_bits_in_text_that_needs_no_quoting() -> None:
    token = Ids().token()
    assert len(token) == 43
    assert token.replace("-", "").replace("_", "").isalnum()
    assert token != Ids().token()


def test_of_a_token_its_hash_is_kept() -> None:
    assert token_hash("token") == hashlib.sha256(b"token").digest()


def test_any_text_can_be_hashed() -> None:
    assert len(token_hash("\ud800")) == 32


def test_a_uuid_is_read_in_the_ways_that_people_write_it() -> None:
    made = uuid.uuid4()
    assert parse_uuid(str(made)) == parse_uuid(made.hex) == parse_uuid(str(made).upper()) == made


@settings(deadline=None)
@given(st.one_of(st.none(), st.integers(), st.binary(), st.text(max_size=20), st.just("0" * 37)))
def test_what_is_no_uuid_is_none(text: object) -> None:
    assert parse_uuid(text) is None
