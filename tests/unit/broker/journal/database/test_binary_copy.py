import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.journal.database.binary_copy import END, HEADER, Field, pack_row, read_row, unpack_rows
from xbus.errors import JournalError

ROWS = st.lists(st.lists(st.none() | st.binary(max_size=20), max_size=5), max_size=5)


def packed(rows: list[list[Field]]) -> bytes:
    return b"".join([HEADER, *(piece for row in rows for piece in pack_row(row)), END])


def messages(rows: list[list[Field]], are_alone: bool) -> list[bytes]:
    """The rows as PostgreSQL sends them: header and end may come alone, or with the row beside them."""
    packed_rows = [b"".join(pack_row(row)) for row in rows]
    if are_alone or not packed_rows:
        return [HEADER, *packed_rows, END]
    packed_rows[0] = HEADER + packed_rows[0]
    packed_rows[-1] += END
    return packed_rows


@given(ROWS, st.booleans())
def test_what_was_packed_comes_out(rows: list[list[Field]], are_alone: bool) -> None:
    data = packed(rows)
    assert list(unpack_rows(messages(rows, are_alone))) == rows
    assert list(unpack_rows([data])) == rows
    file = io.BytesIO(data[len(HEADER) :])
    assert [read_row(file) for _ in rows] == rows
    assert read_row(file) is None


@given(ROWS, st.data())
def test_what_is_broken_off_is_told(rows: list[list[Field]], data: st.DataObject) -> None:
    whole = packed(rows)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(JournalError, match="broken off"):
        list(unpack_rows([torn]))
    file = io.BytesIO(torn[len(HEADER) :])
    with pytest.raises(JournalError, match="broken off"):
        while read_row(file) is not None:
            pass


@given(ROWS, st.booleans(), st.data())
def test_a_message_that_is_missing_is_told(rows: list[list[Field]], are_alone: bool, data: st.DataObject) -> None:
    sent = messages(rows, are_alone)
    with pytest.raises(JournalError, match="broken off"):
        list(unpack_rows(sent[: data.draw(st.integers(0, len(sent) - 1))]))


def test_it_is_what_postgresql_writes() -> None:
    # COPY (SELECT 1, NULL::text, 'ab'::bytea) TO STDOUT (FORMAT binary)
    data = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\3\0\0\0\4\0\0\0\1\xff\xff\xff\xff\0\0\0\2ab\xff\xff"
    assert list(unpack_rows([data])) == [[b"\0\0\0\1", None, b"ab"]]
    assert packed([[b"\0\0\0\1", None, b"ab"]]) == data
