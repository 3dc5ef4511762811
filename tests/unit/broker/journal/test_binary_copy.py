import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.journal.binary_copy import END, HEADER, Field, pack_row, read_row, unpack_rows
from xbus.errors import JournalError

ROWS = st.lists(st.lists(st.none() | st.binary(max_size=20), max_size=5), max_size=5)


def packed(rows: list[list[Field]]) -> bytes:
    return b"".join([HEADER, *(piece for row in rows for piece in pack_row(row)), END])


@given(ROWS)
def test_what_was_packed_comes_out(rows: list[list[Field]]) -> None:
    data = packed(rows)
    assert list(unpack_rows(memoryview(data))) == rows
    file = io.BytesIO(data[len(HEADER) :])
    assert [read_row(file) for _ in rows] == rows
    assert read_row(file) is None


@given(ROWS, st.data())
def test_what_is_broken_off_is_told(rows: list[list[Field]], data: st.DataObject) -> None:
    whole = packed(rows)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(JournalError, match="broken off"):
        list(unpack_rows(memoryview(torn)))
    file = io.BytesIO(torn[len(HEADER) :])
    with pytest.raises(JournalError, match="broken off"):
        while read_row(file) is not None:
            pass


def test_it_is_what_postgresql_writes() -> None:
    # COPY (SELECT 1, NULL::text, 'ab'::bytea) TO STDOUT (FORMAT binary)
    data = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\3\0\0\0\4\0\0\0\1\xff\xff\xff\xff\0\0\0\2ab\xff\xff"
    assert list(unpack_rows(memoryview(data))) == [[b"\0\0\0\1", None, b"ab"]]
    assert packed([[b"\0\0\0\1", None, b"ab"]]) == data
