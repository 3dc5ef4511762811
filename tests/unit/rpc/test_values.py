"""Values of items that msgpack does not know."""

import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from xbus.errors import Refused
from xbus.rpc.codec import unpack
from xbus.rpc.items import hook_for, item_bytes


class Colour(enum.Enum):
    RED = "red"
    SINCE = date(2026, 5, 4)


class Size(enum.IntEnum):
    LARGE = 3


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


TEXTS: list[tuple[object, object]] = [
    (datetime(2026, 5, 4, 9, 30, tzinfo=UTC), "2026-05-04T09:30:00+00:00"),
    (datetime(2026, 5, 4, 9, 30, 1, 250, timezone(timedelta(hours=2))), "2026-05-04T09:30:01.000250+02:00"),
    (datetime(2026, 5, 4, 9, 30), "2026-05-04T09:30:00"),  # noqa: DTZ001
    (date(2026, 5, 4), "2026-05-04"),
    (time(9, 30), "09:30:00"),
    (Decimal("12.50"), "12.50"),
    (Decimal("NaN"), "NaN"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (Colour.RED, "red"),
    (Colour.SINCE, "2026-05-04"),
    (Size.LARGE, 3),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=repr)
def test_it_is_packed_as_text(value: object, text: object) -> None:
    assert unpack(item_bytes(value)) == text
    assert unpack(item_bytes({"orders": [value], "by": {value: 1}})) == {"orders": [text], "by": {text: 1}}


def test_what_is_sent_again_has_the_same_bytes() -> None:
    def item() -> dict[str, object]:
        return {"at": datetime(2026, 5, 4, tzinfo=UTC), "total": Decimal("12.50"), "id": uuid.UUID(int=7)}

    assert item_bytes(item()) == item_bytes(item())


def pack_money(value: object) -> object:
    if isinstance(value, Money):
        return Decimal(value.cents) / 100
    raise TypeError("not money")


def test_an_author_packs_other_values() -> None:
    item = {"total": Money(1250), "on": date(2026, 5, 4)}
    assert unpack(item_bytes(item, hook_for(pack_money))) == {"total": "12.5", "on": "2026-05-04"}


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> object:
    value: list[object] = []
    value.append(value)
    return value


UNPACKABLE: dict[str, tuple[object, str]] = {
    "at the top": ({1}, "it is of the type set"),
    "in a map": ({"client": {"tags": {1}}}, "client.tags is of the type set"),
    "in a list": ({"orders": [{"total": 1}] * 3 + [{"total": Money(1)}]}, "orders[3].total is of the type "),
    "under a key that is no name": ({"unit price": {7: object()}}, "['unit price'][7] is of the type object"),
    "a key": ({"orders": {("a",): 1, frozenset(): 2}}, "a key of orders is of the type frozenset"),
    "an integer": ({"n": [2**64]}, "n[0] is an integer of more than 64 bits"),
    "half a character": ({"name": "\ud800"}, "name is a text with characters that UTF-8 does not have"),
    "a tuple": ((1, complex(1)), "[1] is of the type complex"),
    "too deep": (deep(2000), "nested too deeply"),
    "in itself": (endless(), "contains itself"),
}


@pytest.mark.parametrize(("item", "cause"), UNPACKABLE.values(), ids=UNPACKABLE)
def test_an_error_names_the_place_in_the_item(item: object, cause: str) -> None:
    with pytest.raises(Refused) as refused:
        item_bytes(item)
    assert refused.value.code == "bad_items"
    assert cause in refused.value.cause
    assert "pack=" in refused.value.next_step


HOOKS: list[tuple[Any, str]] = [
    (pack_money, "orders[1] is of the type set (not money)"),
    (lambda value: value, "what `pack=` makes of it can't be packed"),
    (lambda value: object(), "what `pack=` makes of it can't be packed"),
]


@pytest.mark.parametrize(("pack", "cause"), HOOKS)
def test_a_value_that_the_author_does_not_pack_either(pack: Any, cause: str) -> None:
    with pytest.raises(Refused) as refused:
        item_bytes({"orders": [1, {2}]}, hook_for(pack))
    assert cause in refused.value.cause


def test_an_error_of_the_author_comes_out_as_it_is() -> None:
    def fail(value: object) -> object:
        raise KeyError(value)

    with pytest.raises(KeyError):
        item_bytes({1}, hook_for(fail))


def test_plain_values_ask_nobody() -> None:
    def never(value: object) -> object:
        raise AssertionError(value)

    item = {"name": "Ada", "n": [1, 2.5, None, True, b"x"]}
    assert unpack(item_bytes(item, never)) == item
