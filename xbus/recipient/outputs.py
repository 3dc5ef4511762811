"""Turns a worker's answers into items, and these into the batches of the wire. Pure."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias, cast

from xbus.recipient.item import Batch, Item
from xbus.rpc.codec import pack_items
from xbus.rpc.items import cut

WireBatch: TypeAlias = tuple[int, int, bytes, list[list[int]] | None]
"""A batch in the form of the wire: first index, number of items, data, and indices or None."""


def values_of(answer: object) -> Iterable[object]:
    """Iterate over values: a list, a tuple or a generator is many, None is no value, anything else is one."""
    kind = type(answer)
    if kind is list or kind is tuple:  # decided first, as it is asked for each item
        return cast("Iterable[object]", answer)
    if answer is None:
        return ()
    if kind is Item or kind is bytes or kind is dict:
        return (answer,)
    return answer if isinstance(answer, (list, tuple, Iterator)) else (answer,)


def made_of(source: Item, values: Iterable[object]) -> list[Item]:
    """Make items of the values, with the indices of ``source`` unless they have their own."""
    return [value if type(value) is Item else source.with_value(value) for value in values]


def made_of_batch(batch: Batch, answer: object) -> list[Item]:
    """Make items of the answer of ``Worker.on_batch``.

    Raises:
        TypeError: values that are no ``Item``, and not one for each item of the batch.
    """
    values = list(values_of(answer))
    if all(type(value) is Item for value in values):
        return cast("list[Item]", values)
    if len(values) != len(batch):
        raise TypeError(
            f"on_batch answered {len(values)} values to {len(batch)} items: "
            "answer one value per item, or Item objects, which say what they were made of"
        )
    return [item for source, value in zip(batch, values, strict=True) for item in made_of(source, [value])]


def made_of_event(answer: object) -> list[Item]:
    """Make items of the answer of ``Worker.on_event_end``, without indices unless they have their own."""
    return [value if type(value) is Item else Item.of(value) for value in values_of(answer)]


def wire_batches(items: list[Item], max_batch_bytes: int) -> list[WireBatch]:
    """Cut the items into batches, each small enough for the bus."""
    batches: list[WireBatch] = []
    start = 0
    for datas in cut([item.data for item in items], max_batch_bytes):
        piece = items[start : start + len(datas)]
        start += len(datas)
        batches.append((max(piece[0].index, 0), len(piece), pack_items(datas), _indices(piece)))
    return batches


def _indices(items: list[Item]) -> list[list[int]] | None:
    first = items[0].index
    if all(item.is_original for item in items) and [item.index for item in items] == list(
        range(first, first + len(items))
    ):
        return None
    return [item.indices for item in items]
