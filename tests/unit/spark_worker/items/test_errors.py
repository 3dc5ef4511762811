"""What is told of items that can't be taken."""

from spark_worker.items import errors
from spark_worker.items.errors import ItemError, ItemsRefused

ALL = "some of the items do not fit the schema"


def told(*items: ItemError) -> list[ItemError]:
    return ItemsRefused(ALL, items).errors


def test_items_of_one_cause_are_told_together_with_what_is_wrong_on_the_whole() -> None:
    assert told(([3], "no map"), ([5], "id is missing"), ([9], "no map")) == [
        ([3, 9], f"no map ({ALL})"),
        ([5], "id is missing"),
    ]


def test_a_single_item_is_told_as_it_is() -> None:
    assert told(([3], "no map")) == [([3], "no map")]


def test_many_causes_do_not_make_as_many_errors() -> None:
    many = told(*(([number], f"{number} is no date") for number in range(1000)))

    assert len(many) == errors.MOST_CAUSES + 1
    assert [index for indices, _ in many for index in indices] == list(range(1000))
    assert many[-1][1] == "980 other causes, such as: 20 is no date"
