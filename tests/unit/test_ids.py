"""Identifiers and tokens, with time and chance handed in."""

import hashlib
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from xbus.ids import (
    Ids,
    keyed_envelope_id,
    keyed_ids,
    numbered_event_id,
    parse_uuid,
    replayed_envelope_id,
    token_hash,
)


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


@given(st.binary(min_size=10, max_size=10))
def test_an_id_that_is_made_as_text_is_the_same(chance: bytes) -> None:
    ids = Ids(StandingClock(NOON), lambda size: chance[:size])
    assert ids.new_text() == str(ids.new())


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


@given(st.one_of(st.none(), st.integers(), st.binary(), st.text(max_size=20), st.just("0" * 37)))
def test_what_is_no_uuid_is_none(text: object) -> None:
    assert parse_uuid(text) is None


def test_the_ids_that_keys_lead_to_never_change() -> None:
    """What was sent under a key by an earlier version must be found by this one."""
    envelope_id = keyed_envelope_id(7, "invoice 2026-17")
    assert str(envelope_id) == "4ad7880d-ff99-59d1-aa56-236e2ad08c3a"
    assert str(keyed_envelope_id(7, "invoice 2026-17", 2)) == "153e54f3-c342-57d3-921b-351e24e5e984"
    assert str(numbered_event_id(envelope_id, 3)) == "8adb122a-21ec-5db8-86da-8a2729afe066"


# UTF-8 has no surrogates, so no key that comes by the wire holds one.
KEY_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)


@given(
    one=st.tuples(st.integers(1, 20), KEY_TEXTS, st.integers(0, 20)),
    other=st.tuples(st.integers(1, 20), KEY_TEXTS, st.integers(0, 20)),
)
def test_different_keys_lead_to_different_ids(one: tuple[int, str, int], other: tuple[int, str, int]) -> None:
    assert (keyed_envelope_id(*one) == keyed_envelope_id(*other)) == (one == other)


def test_the_ids_of_a_replay_never_change() -> None:
    """Else one that an update of the bus broke off would send all once more."""
    envelope_id = replayed_envelope_id(uuid.UUID(int=1), 2, 3, "first")
    assert str(envelope_id) == "11e7425b-a6b5-596a-85fa-9a81d22a0efb"
    assert str(numbered_event_id(envelope_id, 1)) == "d2e62631-74bc-5e27-ad9d-52a211982afe"
    others = [
        replayed_envelope_id(uuid.UUID(int=4), 2, 3, "first"),
        replayed_envelope_id(uuid.UUID(int=1), 4, 3, "first"),
        replayed_envelope_id(uuid.UUID(int=1), 2, 4, "first"),
        replayed_envelope_id(uuid.UUID(int=1), 2, 3, "second"),
    ]
    assert len({envelope_id, *others}) == 5


@given(st.binary(min_size=48, max_size=48))
def test_any_chance_makes_legal_ids_of_one_moment(chance: bytes) -> None:
    made = [uuid.UUID(bytes=each) for each in Ids(StandingClock(NOON), lambda size: chance[:size]).new_bytes(3)]
    assert [(each.version, each.variant) for each in made] == [(7, uuid.RFC_4122)] * 3
    assert {each.int >> 80 for each in made} == {int(NOON.timestamp() * 1000)}
    random_bits = ~(0xF << 76 | 0x3 << 62) & (1 << 80) - 1
    of_chance = [int.from_bytes(chance[k : k + 16], "big") & random_bits for k in range(0, 48, 16)]
    assert [each.int & random_bits for each in made] == of_chance


def test_the_ids_of_keys_are_those_of_rfc_9562() -> None:
    emitter_ids, keys = [1, 2, 2], ["invoice 1", "invoice 1", "Grüße"]
    envelope_ids, event_ids = keyed_ids(emitter_ids, keys)
    made = [keyed_envelope_id(emitter_id, key) for emitter_id, key in zip(emitter_ids, keys, strict=True)]
    assert envelope_ids == [each.bytes for each in made]
    assert event_ids == [numbered_event_id(each, 1).bytes for each in made]


def test_no_keys_have_no_ids() -> None:
    assert keyed_ids([], []) == ([], [])
