"""Turns a worker's answers into items, and these into the batches of the wire. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias, cast

from xbus.recipient.envelope import Batch, Item, Out, RoutedItem, indices_of
from xbus.rpc.codec import pack_items
from xbus.rpc.items import cut

WireBatch: TypeAlias = (
    tuple[int, int, bytes, list[list[int]] | None] | tuple[int, int, bytes, list[list[int]] | None, str]
)
"""A batch in the form of the wire: first index, number of items, data, and indices or None; behind them the event type
as which they go on, where the worker names one."""


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
    return [value if type(value) is Item else _made(source, value) for value in values]


def _made(source: Item | None, value: object) -> Item:
    if isinstance(value, Item):
        return value
    if isinstance(value, Out):
        return value.made_of(source)
    return Item.of(value) if source is None else source.with_value(value)


def made_of_batch(batch: Batch, answer: object) -> list[Item]:
    """Make items of the answer of ``Worker.on_batch``.

    Raises:
        TypeError: values that are no ``Item``, and not one for each item of the batch.
    """
    values = [_with_own_indices(value) for value in values_of(answer)]
    if all(isinstance(value, Item) for value in values):
        return cast("list[Item]", values)
    if len(values) != len(batch):
        raise TypeError(
            f"on_batch answered {len(values)} values to {len(batch)} items: "
            "answer one value per item, or Item objects, which say what they were made of"
        )
    return [item for source, value in zip(batch, values, strict=True) for item in made_of(source, [value])]


def _with_own_indices(value: object) -> object:
    return value.made_of(None) if isinstance(value, Out) and isinstance(value.value, Item) else value


def made_of_event(answer: object) -> list[Item]:
    """Make items of the answer of ``Worker.on_event_end``, without indices unless they have their own."""
    return [_made(None, value) for value in values_of(answer)]


def wire_batches(items: list[Item], max_batch_bytes: int) -> list[WireBatch]:
    """Cut the items into batches, each small enough for the bus and of one event type."""
    if RoutedItem not in set(map(type, items)):
        return _of_one_type(items, max_batch_bytes)
    return [
        batch if event_type is None else (*batch[:4], event_type)
        for event_type, group in groupby(items, _named_type)
        for batch in _of_one_type(list(group), max_batch_bytes)
    ]


def _named_type(item: Item) -> str | None:
    return item.event_type if isinstance(item, RoutedItem) else None


def _of_one_type(items: list[Item], max_batch_bytes: int) -> list[WireBatch]:
    batches: list[WireBatch] = []
    start = 0
    for datas in cut([item.data for item in items], max_batch_bytes):
        piece = items[start : start + len(datas)]
        start += len(datas)
        batches.append((max(piece[0].index, 0), len(piece), pack_items(datas), indices_of(piece)))
    return batches
