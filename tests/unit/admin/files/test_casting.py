"""From texts to values."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.files.descriptor import DateCast, DecimalCast, Misfit, cast_int


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_whole_number_is_itself(number: int) -> None:
    assert cast_int(f" {number} ") == number


@pytest.mark.parametrize("text", [str(2**64), str(-(2**63) - 1)])
def test_a_whole_number_that_msgpack_can_not_write_is_never_dropped(text: str) -> None:
    with pytest.raises(Misfit, match="more than 64 bits") as misfit:
        cast_int(text)
    assert not misfit.value.is_lenient


@given(st.dates(min_value=date(1000, 1, 1)))
def test_a_date_is_written_as_iso_says(day: date) -> None:
    assert DateCast("%d/%m/%Y")(f"{day.day}/{day.month}/{day.year}") == day.isoformat()


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=3))
def test_a_decimal_is_the_same_however_it_is_written(number: Decimal) -> None:
    plain = f"{number:.3f}"
    grouped = f"{number:,.3f}".translate(str.maketrans(",.", ".,"))
    assert DecimalCast()(plain) == float(number)
    assert DecimalCast(thousands=".", point=",")(grouped) == float(number)
    assert DecimalCast(places=3)(plain.replace(".", "")) == float(number)


@pytest.mark.parametrize(
    "text", ["x", "1.2.3", "12-", "--3", "NaN", "inf", "1e999", "1_0", "１２", "12,50", "1 234", "12345678901234567.89"]
)
def test_what_is_no_decimal_is_never_dropped(text: str) -> None:
    with pytest.raises(Misfit, match="is no decimal number") as misfit:
        DecimalCast()(text)
    assert not misfit.value.is_lenient


@pytest.mark.parametrize("text", ["12.50", "1.23.456", "1234.567", "0.500", "1,234.5", ".5", "1_0", "１.234"])
def test_an_amount_of_another_country_is_not_taken_for_one_of_this(text: str) -> None:
    with pytest.raises(Misfit, match=r"with '\.' between groups of three digits and ',' before the decimals"):
        DecimalCast(thousands=".", point=",")(text)


def test_one_delimiter_for_both_divides_thousands() -> None:
    assert DecimalCast(thousands=".")("1.234.567") == 1234567.0
    with pytest.raises(Misfit):
        DecimalCast(thousands=".")("12.50")


@pytest.mark.parametrize("text", ["1_0", "１２", "1.0", "0x10", "1 0", "9" * 5000])
def test_a_whole_number_has_digits_only(text: str) -> None:
    with pytest.raises(Misfit):
        cast_int(text)


def test_blanks_are_no_digits() -> None:
    assert DecimalCast(places=2)(" 1250 ") == 12.5


@pytest.mark.parametrize("text", ["1-2", "-1-5", "1.5", "1_0"])
def test_digits_with_places_are_digits_only(text: str) -> None:
    with pytest.raises(Misfit):
        DecimalCast(places=1)(text)
