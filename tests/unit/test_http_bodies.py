"""Bodies of requests keep no more than there is room for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from xbus.errors import Failed, Refused
from xbus.http.bodies import Body, Room, items_of
from xbus.rpc.codec import unpack


async def parts() -> AsyncIterator[bytes]:
    yield b'name\n"'
    for _ in range(100):
        yield b"x\n"
    yield b'"\n'


async def test_a_row_with_many_lines_takes_room_until_it_is_complete() -> None:
    body = Body(parts(), Room(100), 100_000)
    with pytest.raises(Failed) as failure:
        [item async for item in items_of("text/csv", body)]
    assert failure.value.code == "gateway_full"


async def test_what_a_row_took_is_given_back() -> None:
    room = Room(100_000)
    body = Body(parts(), room, 100_000)
    assert len([item async for item in items_of("text/csv", body)]) == 1
    body.close()
    room.take(100_000)


async def test_a_row_of_one_line_may_take_all_the_room() -> None:
    async def row() -> AsyncIterator[bytes]:
        yield b"name\n"
        yield b"x" * 900
        yield b"x\n"

    body = Body(row(), Room(1000), 1000)
    assert len([item async for item in items_of("text/csv", body)]) == 1


async def whole(text: bytes) -> AsyncIterator[bytes]:
    yield text


@pytest.mark.parametrize("number", ["1e999", "-1e999", "[0.5, 1e400]", "NaN", "Infinity"])
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
async def test_a_number_without_end_is_refused(number: str, media_type: str) -> None:
    with pytest.raises(Refused) as refusal:
        [item async for item in items_of(media_type, Body(whole(number.encode()), Room(1000), 1000))]
    assert refusal.value.code == "bad_body"
    assert number.strip("[]-").rpartition(" ")[2] in refusal.value.cause


MANY_VALUES = b"[" + b"[]," * 200_000 + b"1]"


@pytest.mark.parametrize(
    ("media_type", "text"),
    [("application/json", MANY_VALUES), ("application/msgpack", b"\xdd\x00\x03\x0d\x40" + b"\x90" * 200_000)],
)
async def test_the_values_of_a_document_take_room_until_it_is_closed(media_type: str, text: bytes) -> None:
    room = Room(20_000_000)
    body = Body(whole(text), room, len(text))
    assert len([item async for item in items_of(media_type, body)]) >= 200_000
    with pytest.raises(Failed):
        room.take(5_000_000)
    body.close()
    room.take(20_000_000)


@pytest.mark.parametrize(
    ("media_type", "text"),
    [("application/json", b"[" + b"1," * 1_000_001 + b"1]"), ("application/msgpack", b"\xdd\xff\xff\xff\xff" * 20_000)],
)
async def test_too_many_values_are_refused_before_they_are_made(media_type: str, text: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        [item async for item in items_of(media_type, Body(whole(text), Room(10**9), len(text)))]
    assert refusal.value.code == "body_too_large"


async def items(media_type: str, text: bytes, said: list[str] | None = None) -> list[object]:
    body = Body(whole(text), Room(10**9), 10**8)
    found = items_of(media_type, body, (said if said is not None else []).append)
    return [unpack(item) async for item in found]


@pytest.mark.parametrize(
    ("media_type", "text", "expected"),
    [
        ("text/csv", b"id;name\n1;Ada\n", [{"id": "1", "name": "Ada"}]),
        ("text/csv; header=absent", b"1,Ada\n2,Bob\n", [["1", "Ada"], ["2", "Bob"]]),
        ('text/csv; header=present; delimiter=";"', b"a,b;c\n1,2;3\n", [{"a,b": "1,2", "c": "3"}]),
        ("text/csv; delimiter=tab", b"a,b\tc\n1,2\t3\n", [{"a,b": "1,2", "c": "3"}]),
        ("text/csv", b'id,size\n1,5" pipe\n2,ok\n', [{"id": "1", "size": '5" pipe'}, {"id": "2", "size": "ok"}]),
        ("text/csv", b"sep=;\r\nid;name\r\n1;Ada\r\n", [{"id": "1", "name": "Ada"}]),
        ("text/csv", b"id,name\r1,Ada\r", [{"id": "1", "name": "Ada"}]),
        ("text/csv", "id,name\n1,é\n".encode("utf-16"), [{"id": "1", "name": "é"}]),
        ("text/csv; charset=ISO-8859-1", "id,name\n1,é\n".encode("latin-1"), [{"id": "1", "name": "é"}]),
        ("text/csv", b"id\n" + b"x" * 140_000, [{"id": "x" * 140_000}]),
        ("application/x-ndjson", b'{"id": "%s"}' % (b"x" * 140_000), [{"id": "x" * 140_000}]),
    ],
)
async def test_bodies_become_the_same_items_as_files(media_type: str, text: bytes, expected: list[object]) -> None:
    assert await items(media_type, text) == expected


@pytest.mark.parametrize(
    ("media_type", "text", "why"),
    [
        ("text/csv", b"id,name\n1,Ada\n2\n", "line 3: 1 fields, but the first line names 2"),
        ("text/csv", b'id\n1\n"2\n3\n', "line 3: this is not CSV (a quoted field is still open where the file ends)"),
        ("text/csv", b"id,,\n1,2,3\n", "line 1: the columns 2 and 3 have no name"),
        ("text/csv", b"id\n\xff\n", "line 2: this is not text in UTF-8"),
        ("text/csv", "id\n1\n".encode("utf-16-be"), "it looks like UTF-16-BE without a mark"),
        ("text/csv", "имя,вес\nАнна,5\n".encode("utf-16-be"), "it looks like UTF-16-BE without a mark"),
        ("text/csv", "имя,вес\nАнна,5\n".encode("utf-16-le"), "it looks like UTF-16-LE without a mark"),
        ("text/csv", b"id,n\n1,a\0b\n", "line 2: this is not text in UTF-8: it has a NUL"),
        ("text/csv", b"id,name\n", "the body has no items"),
        ("text/csv", b"", "the body has no items"),
        ("application/x-ndjson", b"", "the body has no items"),
        ("application/x-ndjson", b"\n \n", "the body has no items"),
        ("application/x-ndjson", b'1\n{"a":1,"a":2}\n', 'line 2 is no JSON (a map has the name "a" twice)'),
        ("application/json", b'{"a":12345678901234567.89}', "has more digits than a double holds"),
    ],
)
async def test_a_body_that_would_lose_something_is_refused(media_type: str, text: bytes, why: str) -> None:
    with pytest.raises(Refused) as refusal:
        await items(media_type, text)
    assert refusal.value.code == "bad_body"
    assert why in refusal.value.cause


async def test_an_encoding_that_the_bytes_show_is_named() -> None:
    text = "id\n1\n".encode("utf-16-be")
    with pytest.raises(Refused) as refusal:
        await items("text/csv", text)
    assert "charset=utf-16-be" in refusal.value.next_step
    assert await items("text/csv; charset=utf-16-be", text) == [{"id": "1"}]


@pytest.mark.parametrize("text", [b"n\xe9\n1\n", b"n\n\xe9\n", b"n\n\0\n"])
async def test_a_text_in_another_encoding_has_a_way_out(text: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        await items("text/csv", text)
    assert "text/csv; charset=" in refusal.value.next_step


@pytest.mark.parametrize(
    ("media_type", "text", "place"),
    [
        ("application/x-ndjson", b'{"a":1}\n\n{"a":"\\ud83d"}\n', "line 3: an item can't be packed: a is"),
        ("application/x-ndjson", b"1\n18446744073709551616\n", "line 2: an item can't be packed: it is"),
        ("application/json", b'[1,{"a":["\\ud83d"]}]', "item 2: an item can't be packed: a[0] is"),
    ],
)
async def test_an_item_that_can_not_be_packed_has_a_place(media_type: str, text: bytes, place: str) -> None:
    with pytest.raises(Refused) as refusal:
        await items(media_type, text)
    assert refusal.value.code == "bad_items"
    assert refusal.value.cause.startswith(place)
    assert "pack=" not in refusal.value.next_step


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-16-le"])
async def test_no_part_of_a_body_hides_its_encoding(encoding: str) -> None:
    async def bytewise() -> AsyncIterator[bytes]:
        for byte in "имя,вес\nАнна,5\n".encode(encoding):
            yield bytes([byte])

    with pytest.raises(Refused) as refusal:
        [item async for item in items_of("text/csv", Body(bytewise(), Room(10**9), 10**8))]
    assert refusal.value.code == "bad_body"


async def test_the_form_that_was_found_is_told() -> None:
    said: list[str] = []
    await items("text/csv", b"id|name\n1|Ada\n", said)
    assert said == ["its fields are separated by vertical bars"]
    await items("text/csv", b"id:name\n1:Ada\n", said)
    assert said[1:] == ["its rows have one field, and each has ':' as often"]


@pytest.mark.parametrize(
    "parameter",
    [
        "header=maybe",
        "delimiter=ab",
        'delimiter="\\""',
        'delimiter="\\t"',
        "delimiter=7",
        "charset=klingon",
        "charset=idna",
        "charset=punycode",
    ],
)
async def test_a_parameter_that_means_nothing_is_refused(parameter: str) -> None:
    with pytest.raises(Refused) as refusal:
        await items(f"text/csv; {parameter}", b"id\n1\n")
    assert refusal.value.code in ("unknown_format", "unknown_encoding")


@pytest.mark.parametrize(
    "text",
    [
        b"x" * 14_000_000 + b"\n1\n",
        b",".join(b"%0100d" % number for number in range(2_000)) + b"\n" + (b"," * 1_999 + b"\n") * 400,
        b"a" * 200_000 + b"\n" + b"1\n" * 100,
    ],
    ids=["name", "columns", "rows"],
)
async def test_small_rows_do_not_become_large_items(text: bytes) -> None:
    size = 0
    with pytest.raises(Refused) as refusal:
        async for item in items_of("text/csv", Body(whole(text), Room(10**9), 10**8)):
            size += len(item)
    assert refusal.value.code in ("bad_body", "body_too_large")
    assert size <= 64 * len(text) + 1_048_576
    assert size < 100_000_000


async def test_a_line_is_counted_as_a_document() -> None:
    line = b"[" + b"1," * 1_000_001 + b"1]\n"
    with pytest.raises(Refused) as refusal:
        await items("application/x-ndjson", line)
    assert refusal.value.code == "body_too_large"
    room = Room(30_000_000)
    body = Body(whole(MANY_VALUES + b"\n" + MANY_VALUES), room, 10**8)
    assert len([item async for item in items_of("application/x-ndjson", body)]) == 2
    room.take(25_000_000)


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/json", "text/csv"])
async def test_other_requests_go_on_while_a_large_line_is_read(media_type: str) -> None:
    text = b'["' + b'""' * 400_000 + b'x"]' if media_type == "text/csv" else b"[" + b"1," * 900_000 + b"1]"
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await items("text/csv; header=absent" if media_type == "text/csv" else media_type, text)
    task.cancel()
    # A read on the loop leaves no turn to others. How many a read in a thread leaves depends on the load.
    assert turns > 1


async def test_one_document_may_take_all_the_room() -> None:
    body = Body(whole(MANY_VALUES), Room(len(MANY_VALUES)), len(MANY_VALUES))
    assert len([item async for item in items_of("application/json", body)]) == 200_001
