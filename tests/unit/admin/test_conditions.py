"""Conditions on the fields of items."""

import pytest

from xbus.admin.search import Condition
from xbus.errors import Refused
from xbus.rpc.codec import Value

ORDER: Value = {
    "number": 4711,
    "text": "4711",
    "paid": True,
    "note": None,
    "client": {"number": 7, "name": "Ada Lovelace"},
    "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}],
    "tags": ["new", 5],
    "a.b": {"c": 1},
    b"raw": b"\x00",
}


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("number=4711", True),
        ("number=4711.0", True),
        ("number=471", False),
        ("text=4711", True),
        ('text="4711"', True),
        ('number="4711"', False),
        ("paid=true", True),
        ("paid=1", False),
        ("note=null", True),
        ("note=", False),
        ("nothing=null", False),
        ("client.number=7", True),
        ("client.name=Ada Lovelace", True),
        ("client.number.x=7", False),
        ("lines.sku=b", True),
        ("lines.1.sku=b", True),
        ("lines.0.sku=b", False),
        ("lines.count=2", True),
        ("tags=new", True),
        ("tags=5", True),
        ("tags.1=5", True),
        ("a.b.c=1", True),
        ("raw=x", False),
        ("name=a=b", False),
    ],
)
def test_a_condition_fits_or_not(condition: str, fits: bool) -> None:
    assert Condition.of(condition).fits(ORDER) is fits


def test_an_item_that_is_no_map_has_no_fields() -> None:
    assert not Condition.of("a=1").fits("a=1")
    assert Condition.of("sku=a").fits([{"sku": "a"}])


@pytest.mark.parametrize("text", ["", "number", "=4", "client..number=4", ".=1"])
def test_a_text_that_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        Condition.of(text)
    assert refused.value.code == "bad_condition"
