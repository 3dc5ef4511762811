"""Headers as bytes: what is packed comes out again, equal headers have equal bytes, and bad ones are refused."""

import enum
import random
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from xbus.errors import Refused
from xbus.headers import (
    MAX_BYTES,
    NO_TAGS,
    EventTags,
    HeaderValue,
    check_packed,
    check_partition_key,
    event_tags,
    pack_headers,
    unpack_headers,
)
from xbus.headers.known import KNOWN

NOON = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)


class Colour(enum.StrEnum):
    RED = "red"


class Moment(datetime):
    """As libraries for tables make them."""


NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.\-]{0,20}\Z").filter(lambda name: name.lower() not in KNOWN)
ZONES = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
VALUES: st.SearchStrategy[HeaderValue] = st.one_of(
    st.text(max_size=40),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.datetimes(timezones=ZONES).filter(lambda at: 2 < at.year < 9998),
)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=12)


@given(HEADERS)
def test_a_dict_is_packed_as_any_other_map(headers: dict[str, HeaderValue]) -> None:
    assert pack_headers(headers) == pack_headers(headers) == pack_headers(MappingProxyType(headers))


def test_headers_that_are_sent_again_are_not_checked_again() -> None:
    headers: dict[str, HeaderValue] = {"shop": "Paris", "user": "Ada", "lines": 3}
    assert pack_headers(headers) is not None
    assert calls_of(lambda: pack_headers({**headers})) == 1


@given(HEADERS)
def test_what_is_packed_comes_out_again(headers: dict[str, HeaderValue]) -> None:
    packed = pack_headers(headers)
    found = unpack_headers(packed)
    assert found == headers
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in headers.items()
    }
    assert (packed is None) == (not headers)
    assert check_packed(packed) == packed


@given(HEADERS, st.randoms(use_true_random=False))
def test_equal_headers_have_equal_bytes(headers: dict[str, HeaderValue], order: random.Random) -> None:
    names = list(headers)
    order.shuffle(names)
    shuffled = {name: headers[name] for name in names}
    assert pack_headers(shuffled) == pack_headers(headers)
    # However a stranger orders them, the bus keeps the same bytes.
    assert check_packed(msgpack.packb(shuffled, datetime=True)) == pack_headers(headers)


@given(st.binary(max_size=200))
def test_any_bytes_are_headers_or_refused(data: bytes) -> None:
    try:
        packed = check_packed(data)
    except Refused as refusal:
        assert refusal.code == "bad_header"
        assert refusal.cause
        assert refusal.next_step
    else:
        assert unpack_headers(check_packed(packed)) == unpack_headers(packed)


@given(
    st.dictionaries(
        st.one_of(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1)), st.one_of(VALUES, st.none(), st.binary())
    )
)
def test_any_map_is_headers_or_refused(given: dict[Any, Any]) -> None:
    try:
        packed = check_packed(msgpack.packb(given, datetime=True))
    except Refused as refusal:
        assert refusal.code == "bad_header"
        assert refusal.cause
        assert refusal.next_step
    else:
        assert unpack_headers(packed) == given


def test_moments_are_in_utc_and_derived_values_become_plain_ones() -> None:
    eastern = timezone(timedelta(hours=-5))
    given = {"at": NOON.astimezone(eastern), "derived": Moment(2030, 1, 31, 12, tzinfo=UTC), "colour": Colour.RED}
    found = unpack_headers(pack_headers(given))
    assert found == {"at": NOON, "derived": NOON, "colour": "red"}
    at = found["at"]
    assert isinstance(at, datetime)
    assert at.tzinfo is UTC


@pytest.mark.parametrize(
    ("headers", "cause", "step"),
    [
        ({"": 1}, "a header can't be called ''", "give a name of up to 64"),
        ({"1st": 1}, "a header can't be called '1st'", "begins with a letter"),
        ({"größe": 1}, "a header can't be called 'größe'", "letters, digits"),
        ({"x" * 65: 1}, "a header can't be called", "up to 64"),
        ({"a\n": 1}, "a header can't be called", "letters"),
        ({7: 1}, "a header can't be called 7", "letters"),
        ({"Traceparent": "x"}, "header Traceparent differs from traceparent only in its case", "call it traceparent"),
        ({"mine": None}, "header mine is of the type NoneType", "give a text, an integer"),
        ({"mine": b"x"}, "header mine is of the type bytes", "give a text, an integer"),
        ({"mine": [1]}, "header mine is of the type list", "give a text"),
        ({"mine": {}}, "header mine is of the type dict", "give a text"),
        ({"mine": NOON.date()}, "header mine is of the type date", r"a moment \(datetime\)"),
        ({"mine": NOON.replace(tzinfo=None)}, "header mine is a moment without a time zone", "give one with it"),
        ({"mine": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "mine is a moment outside", "inside"),
        ({"mine": float("nan")}, "header mine is nan", "finite"),
        ({"mine": float("-inf")}, "header mine is -inf", "finite"),
        ({"mine": msgpack.Timestamp(5)}, "header mine is of the type Timestamp", r"a moment \(datetime\)"),
        ({"mine": 2**63}, "header mine is an integer of more than 64 bits", "give it as text"),
        ({"mine": -(2**63) - 1}, "header mine is an integer of more than 64 bits", "give it as text"),
        ({"mine": "\ud800"}, "header mine has characters that UTF-8 does not have", "give other text"),
        ([("mine", 1)], "the headers are of the type list", "give a map"),
    ],
)
def test_bad_headers_are_refused(headers: Any, cause: str, step: str) -> None:
    with pytest.raises(Refused, match=cause) as refusal:
        pack_headers(headers)
    assert refusal.value.code == "bad_header"
    with pytest.raises(Refused, match=step):
        pack_headers(headers)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        ("text", "the headers are of the type str"),
        ({"a": 1}, "the headers are of the type dict"),
        (b"", "the headers are no msgpack"),
        (b"\x81", "the headers are no msgpack"),
        (b"\x80\x80", "the headers are no msgpack"),
        (b"\x91" * 2000 + b"\x80", "the headers are no msgpack"),
        (b"\x90", "the headers are of the type list"),
        (msgpack.packb({"a": msgpack.ExtType(5, b"x")}), "the headers contain msgpack extension type 5"),
        (msgpack.packb({"a": msgpack.Timestamp(2**40)}), "the headers are no msgpack"),
        (msgpack.packb({"a": {}}), "header a is of the type dict"),
        (msgpack.packb({1: "a"}), "the headers are no msgpack"),
        (b"\x82\xa1a\x01\xa1a\x02", "a header comes twice"),
    ],
)
def test_bad_bytes_are_refused(data: Any, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as refusal:
        check_packed(data)
    assert refusal.value.code == "bad_header"
    assert refusal.value.next_step


def test_they_take_four_kibibytes_at_the_most() -> None:
    fitting = {"a": "x" * (MAX_BYTES - 6)}
    packed = pack_headers(fitting)
    assert packed is not None
    assert len(packed) == MAX_BYTES == 4096
    assert check_packed(packed) == packed
    with pytest.raises(Refused, match="the headers take 4097 bytes, and 4096 are allowed in all") as refusal:
        pack_headers({"a": fitting["a"] + "x"})
    assert refusal.value.code == "headers_too_large"
    assert refusal.value.next_step
    with pytest.raises(Refused, match="the headers take 4097 bytes"):
        check_packed(packed + b"\x80")


def test_a_partition_key_is_a_text() -> None:
    assert check_partition_key("é" * 255) == "é" * 255
    assert check_partition_key(None) is None
    for wrong in ("", "x" * 256, "zero\0", "\ud800", 7, b"bytes", ["x"]):
        with pytest.raises(Refused, match=r"the partition key .* can't be used: give a text of 1 to 255") as refusal:
            check_partition_key(wrong)
        assert refusal.value.code == "bad_partition_key"


def test_the_tags_of_an_event() -> None:
    assert event_tags(None, None) == event_tags({}, None) == NO_TAGS
    assert event_tags({"a": 1}, "k") == EventTags(pack_headers({"a": 1}), "k")
    assert (NO_TAGS.size, event_tags({"a": 1}, "k").size) == (0, 4)
