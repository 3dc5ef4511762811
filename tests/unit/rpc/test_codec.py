"""Values and items to bytes and back."""

import pickle

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xbus.errors import ProtocolError
from xbus.rpc.codec import (
    BAD_ITEMS,
    EXTENSION_REFUSED,
    KEPT_BYTES,
    TOO_MANY_VALUES,
    KeptPacker,
    Pieces,
    check_values,
    first_text,
    item_pieces,
    largest_item,
    pack,
    pack_arguments,
    pack_items,
    unpack,
    unpack_items,
)

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 99), inner), max_leaves=20
)


@given(values)
def test_what_is_packed_comes_back(value: object) -> None:
    assert unpack(pack(value)) == value


def test_text_and_bytes_stay_distinct() -> None:
    assert unpack(pack(["a", b"a"])) == ["a", b"a"]


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        unpack(data)
    except ProtocolError as error:
        assert error.cause


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x01\x02", b"\xa1\xff", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff", b"\x81\x90\x01"]
)
def test_what_is_not_one_value_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data)


def counted(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(counted, value))
    if isinstance(value, dict):
        return 1 + sum(counted(key) + counted(member) for key, member in value.items())
    return 1


LARGE = [["x" * 40, "y" * 300, "z" * 70_000], [b"", b"b" * 300, b"c" * 70_000], [[]] * 40, [0] * 70_000, {1: {2: 3}}]


@given(values)
@example(LARGE)
@example(dict.fromkeys(range(70000)))
@example([-1, -33, -200, -(2**20), -(2**40), 127, 200, 2**20, 2**40, 1.5, True])
def test_values_are_counted_without_being_made(value: object) -> None:
    data, values = pack(value), counted(value)
    check_values(data, values)
    with pytest.raises(ProtocolError) as refused:
        check_values(data, values - 1)
    assert refused.value.code == TOO_MANY_VALUES


@given(st.binary(), st.integers(1, 100))
def test_any_bytes_can_be_counted(data: bytes, most: int) -> None:
    try:
        check_values(data, most)
    except ProtocolError as error:
        assert error.code == TOO_MANY_VALUES


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\x00\xff\xff\xff" + b"\x80" * 1_000_000,
        b"\xdc\x3f\xff" * 5_000,
        b"\xdf\xff\xff\xff\xff" + b"\xc0" * 1_000,
        b"\xde\xff\xff" * 200,
    ],
    ids=["empty maps", "arrays that declare arrays", "a map that declares much", "maps that declare maps"],
)
def test_more_values_than_are_wanted_are_refused_unmade(data: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        unpack(data, 1_000)
    assert refused.value.code == TOO_MANY_VALUES


@pytest.mark.parametrize(
    ("data", "key", "found"),
    [
        (pack(["token", {"a": [1]}, b"x" * 5_000]), None, "token"),
        (pack({"token": "it", "item": b"x" * 5_000}), "token", "it"),
        (pack({"item": b"x" * 5_000, "token": "it"}), "token", ""),
        (pack([]), None, ""),
        (pack([b"token"]), None, ""),
        (pack([["token"]]), None, ""),
        (pack("token"), None, ""),
        (pack(["t" * 2_000]), None, ""),
        (b"\x91\xa2\xff\xff", None, ""),
        (b"\xdd\xff\xff\xff\xff\xa2it", None, "it"),
        (b"\xc1", None, ""),
        (b"", "token", ""),
    ],
)
def test_the_first_text_is_found_without_the_others(data: bytes, key: str | None, found: str) -> None:
    assert first_text(data, key) == found


class Bomb:
    """Unpickled, it fails the test."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("extension", [0, 5, 123, 124, 125, 126, 127])
def test_an_extension_is_refused_unopened(extension: int) -> None:
    data = msgpack.packb([1, {"k": msgpack.ExtType(extension, pickle.dumps(Bomb()))}])
    with pytest.raises(ProtocolError) as caught:
        unpack(data)
    assert caught.value.code == EXTENSION_REFUSED


@pytest.mark.parametrize("value", [object(), 2**64, {"a": {1, 2}}])
def test_a_value_that_msgpack_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="can't be sent"):
        pack(value)


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_items_come_back(items: list[bytes]) -> None:
    data = pack_items(items)
    assert data == b"".join(map(pack, items))
    assert unpack_items(data, len(items)) == items


@pytest.mark.parametrize("number", [15, 16, 65535, 65536])
def test_items_at_the_borders_of_the_array_header(number: int) -> None:
    assert unpack_items(pack_items([b"x"] * number), number) == [b"x"] * number


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=20), st.integers(-3, 30))
def test_another_number_of_items_is_refused(items: list[bytes], number: int) -> None:
    if number == len(items):
        return
    with pytest.raises(ProtocolError) as caught:
        unpack_items(pack_items(items), number)
    assert caught.value.code == BAD_ITEMS


@pytest.mark.parametrize(
    "data",
    [pack("text"), pack(7), pack([]), pack({}), pack(None), b"\xd4\x7fx", b"\xc4\x05abc", b"\xdd\xff\xff\xff\xff"],
)
def test_what_is_no_bin_is_no_item(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        unpack_items(data, 1)
    assert caught.value.code == BAD_ITEMS


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_segment_is_read_or_refused(data: bytes, number: int) -> None:
    try:
        items = unpack_items(data, number)
    except ProtocolError as error:
        assert error.code == BAD_ITEMS
    else:
        assert len(items) == number


@pytest.mark.parametrize("items", [["text"], [b"a", 1], [bytearray(b"a")]])
def test_only_bytes_are_packed_as_items(items: list[bytes]) -> None:
    with pytest.raises(ProtocolError) as caught:
        pack_items(items)
    assert caught.value.code == BAD_ITEMS


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 2**20])
@pytest.mark.parametrize("others", [0, 3, 14, 15])
def test_large_bytes_are_packed_as_small_ones_are(size: int, others: int) -> None:
    large = b"x" * size
    args = (*range(others), large)
    assert bytes(pack_arguments(args)) == pack(args)
    assert pack_items([large] * (others + 1)) == pack(large) * (others + 1)
    items = item_pieces([large] * (others + 1))
    assert bytes(items) == pack_items([large] * (others + 1))
    assert len(items) == len(bytes(items))
    if others < 15:
        assert bytes(pack_arguments((*range(others), items))) == pack((*range(others), bytes(items)))


def test_large_bytes_are_not_copied() -> None:
    large = b"x" * 2**20
    items = item_pieces([large, b"small", large])
    assert isinstance(items, Pieces)
    for arguments in (pack_arguments(("token", items, 7)), pack_arguments((large, None, large))):
        assert isinstance(arguments, Pieces)
        assert sum(piece is large for piece in arguments.pieces) == 2


@pytest.mark.parametrize("size", [0, 1, 255, 256, 5_000, 65_535, 65_536, 100_000])
@pytest.mark.parametrize("number", [1, 3])
def test_items_are_found_be_they_small_or_large(size: int, number: int) -> None:
    data = pack_items([b"x" * size] * number)
    assert unpack_items(data, number) == [b"x" * size] * number
    assert largest_item(data, number) == size
    assert largest_item(data + pack_items([b"y" * (size + 1)]), number + 1) == size + 1
    for wrong, items in ((data, number + 1), (data, number - 1), (data + b"\xc4", number), (data[:-1], number)):
        with pytest.raises(ProtocolError) as caught:
            largest_item(wrong, items)
        assert caught.value.code == BAD_ITEMS
    with pytest.raises(ProtocolError):
        largest_item(pack("x" * size + "y"), 1)


def test_a_packer_drops_a_buffer_that_has_grown() -> None:
    packer = KeptPacker()
    before = packer.pack
    for small in (before(b"x"), Pieces([b"x" * 2 * KEPT_BYTES])):
        packer.packed(small)
        assert packer.pack is before
    packer.packed(before(b"x" * 2 * KEPT_BYTES))
    assert packer.pack is not before
    assert packer.pack(["a", b"b"]) == pack(["a", b"b"])
