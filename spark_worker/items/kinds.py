"""Kinds of values: a type of Spark with its rule, and how a column is made of many values at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from spark_worker.items.explaining import article, shown
from xbus.errors import ConfigurationError


class ItemForm(Enum):
    """The format that a value comes in."""

    MSGPACK = "msgpack"
    JSON = "json"


class DoesNotFit(Exception):
    """A value does not fit its type.

    Args:
        fault: the end of a sentence that begins with the name of the field.
        place: the way from the field to the value, such as ``[2].price``.
    """

    def __init__(self, fault: str, place: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.place = place

    def within(self, place: str) -> "DoesNotFit":
        """Make the same error for the value around."""
        return DoesNotFit(self.fault, place + self.place)


class Unsure(ValueError):
    """Many values can't be read at once: each needs its rule."""


DOUBTS = (Unsure, pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of reading many values at once."""


class TypeRule(ABC):
    """A type of Spark, with the way in which values become its own.

    Args:
        name: of the type, as Spark writes it.
        arrow: the type of a column.
        by_arrow: the type as which Arrow's parser of JSON reads such values; None if it can't.
    """

    def __init__(self, name: str, arrow: pa.DataType, by_arrow: pa.DataType | None = None) -> None:
        self.name = name
        self.arrow = arrow
        self.by_arrow = by_arrow

    @abstractmethod
    def read(self, value: Any) -> object:
        """Give the value for a column.

        Args:
            value: as the format made it, and not None.

        Raises:
            DoesNotFit: it does not fit.
        """

    @abstractmethod
    def take(self, values: list[Any]) -> pa.Array:
        """Make a column of many values at once.

        Raises:
            Exception: one of ``DOUBTS``; the column needs ``read`` value by value.
        """

    @abstractmethod
    def convert(self, found: pa.Array) -> pa.Array:
        """Make a column of values that Arrow has read, as those of ``take``."""


class Leaf(TypeRule):
    """A type without parts.

    Args:
        name: as of ``TypeRule``.
        arrow: as of ``TypeRule``.
        by_arrow: as of ``TypeRule``.
        rule: gives the value for a column, or None if it does not fit.
        sure: by a type that Arrow finds for many values, how these become a column.
        python: the only types of values that may be read at once, where Arrow's own finding is too lenient; a Decimal
            goes as a float, of which ``sure`` has to judge.
    """

    def __init__(
        self,
        name: str,
        arrow: pa.DataType,
        by_arrow: pa.DataType | None,
        rule: Callable[[Any], object],
        sure: Mapping[pa.DataType, Callable[[pa.Array], pa.Array]],
        python: frozenset[type] | None = None,
    ) -> None:
        super().__init__(name, arrow, by_arrow)
        self._rule = rule
        self._sure = sure
        self._python = python

    @property
    def is_found(self) -> bool:
        """Arrow's own finding of a type is strict enough."""
        return self._python is None

    def read(self, value: Any) -> object:
        made = self._rule(value)
        if made is None:
            raise DoesNotFit(f": {shown(value)} is not {article(self.name)}")
        return made

    def take(self, values: list[Any]) -> pa.Array:
        if not self._sure:
            raise Unsure
        if self._python is not None:
            types = set(map(type, values))
            if Decimal in types:
                if any(type(value) is Decimal and value and not float(value) for value in values):
                    raise Unsure
                values = [float(value) if type(value) is Decimal else value for value in values]
                types.discard(Decimal)
            if not self._python.issuperset(types):
                raise Unsure
        return self.convert(pa.array(values))

    def convert(self, found: pa.Array) -> pa.Array:
        if found.null_count == len(found):
            return pa.nulls(len(found), self.arrow)
        if found.type not in self._sure:
            raise Unsure
        return self._sure[found.type](found)


class Slot:
    """A place for a value that may be missing: a field, or an element of an array or map.

    Args:
        kind: of its values.
        is_demanded: whether it can't be null.
    """

    def __init__(self, kind: TypeRule, is_demanded: bool) -> None:
        self.kind = kind
        self.is_demanded = is_demanded

    def read(self, value: Any) -> object:
        """Give the value for a column, which is None for None."""
        if value is not None:
            return self.kind.read(value)
        if self.is_demanded:
            raise DoesNotFit(" is missing")
        return None

    def checked(self, column: pa.Array, around: pa.Array | None = None) -> pa.Array:
        """Let a column pass that lacks nothing; where ``around`` is null nothing is demanded."""
        if self.is_demanded and column.null_count:
            lacking = column.is_null() if around is None else pc.and_(column.is_null(), around.is_valid())
            if pc.any(lacking).as_py():
                raise Unsure
        return column


class Struct(TypeRule):
    """STRUCT: a map with text keys. Keys without a field are left out.

    Args:
        name: as of ``TypeRule``.
        arrow: as of ``TypeRule``.
        slots: the fields by name.
    """

    def __init__(self, name: str, arrow: pa.DataType, slots: Mapping[str, Slot]) -> None:
        read = [(field, slot.kind.by_arrow) for field, slot in slots.items()]
        super().__init__(name, arrow, pa.struct(read) if all(kind for _, kind in read) else None)
        self.slots = slots

    def read(self, value: Any) -> object:
        if type(value) is not dict:
            raise DoesNotFit(f": {shown(value)} is not {article(self.name)}")
        made = {}
        for field, slot in self.slots.items():
            try:
                made[field] = slot.read(value.get(field))
            except DoesNotFit as misfit:
                raise misfit.within(f".{field}") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        if not _has_null(values, dict):
            columns = [
                slot.checked(slot.kind.take([value.get(field) for value in values]))
                for field, slot in self.slots.items()
            ]
            return pa.StructArray.from_arrays(columns, fields=list(self.arrow))
        around = pa.array([value is not None or None for value in values], pa.bool_())
        columns = [
            slot.checked(slot.kind.take([None if value is None else value.get(field) for value in values]), around)
            for field, slot in self.slots.items()
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=around.is_null())

    def convert(self, found: pa.Array) -> pa.Array:
        columns = [
            slot.checked(slot.kind.convert(found.field(place)), found) for place, slot in enumerate(self.slots.values())
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=found.is_null())


class Array(TypeRule):
    """ARRAY: an array, and nothing else that has a length."""

    def __init__(self, name: str, arrow: pa.DataType, element: Slot) -> None:
        super().__init__(name, arrow, element.kind.by_arrow and pa.list_(element.kind.by_arrow))
        self._element = element

    def read(self, value: Any) -> object:
        if type(value) is not list:
            raise DoesNotFit(f": {shown(value)} is not {article(self.name)}")
        made: list[object] = []
        for each in value:
            try:
                made.append(self._element.read(each))
            except DoesNotFit as misfit:
                raise misfit.within(f"[{len(made)}]") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        has_null = _has_null(values, list)
        if isinstance(self._element.kind, Leaf) and self._element.kind.is_found:
            found = pa.array(values)
            if not pa.types.is_list(found.type):
                raise Unsure  # all are null
            return self.convert(found)
        offsets = _offsets(values, has_null)
        elements = list(chain.from_iterable(filter(None, values)))
        column = self._element.checked(self._element.kind.take(elements))
        return pa.ListArray.from_arrays(offsets, column, type=self.arrow)

    def convert(self, found: pa.Array) -> pa.Array:
        column = self._element.checked(self._element.kind.convert(found.values))
        return pa.ListArray.from_arrays(found.offsets, column, type=self.arrow, mask=found.is_null())


class Map(TypeRule):
    """MAP: a map. Two keys that mean the same don't fit.

    Args:
        name: as of ``TypeRule``.
        arrow: as of ``TypeRule``.
        key: of the keys.
        value: of the values.
    """

    def __init__(self, name: str, arrow: pa.DataType, key: TypeRule, value: Slot) -> None:
        super().__init__(name, arrow)
        self._key = Slot(key, is_demanded=True)
        self._value = value
        self._are_keys_plain = pa.types.is_string(key.arrow) or pa.types.is_integer(key.arrow)

    def read(self, value: Any) -> object:
        if type(value) is not dict:
            raise DoesNotFit(f": {shown(value)} is not {article(self.name)}")
        made: dict[object, object] = {}
        for name, each in value.items():
            try:
                key = self._key.read(name)
                if key in made:
                    raise DoesNotFit(" is a key twice")
                made[key] = self._value.read(each)
            except DoesNotFit as misfit:
                raise misfit.within(f"[{shown(name)}]") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        offsets = _offsets(values, _has_null(values, dict))
        if not self._are_keys_plain:
            raise Unsure
        held = list(filter(None, values))
        keys = self._key.checked(self._key.kind.take(list(chain.from_iterable(held))))
        found = self._value.kind.take(list(chain.from_iterable(map(dict.values, held))))
        return pa.MapArray.from_arrays(offsets, keys, self._value.checked(found), self.arrow)

    def convert(self, found: pa.Array) -> pa.Array:
        raise Unsure


def _has_null(values: Sequence[object], wanted: type) -> bool:
    """Check whether some values are None, and all others of a type.

    Raises:
        Unsure: one is of another type.
    """
    types = set(map(type, values)) - {wanted}
    if types - {type(None)}:
        raise Unsure
    return bool(types)


def _offsets(values: Sequence[Any], has_null: bool) -> pa.Array:
    """Say where each list begins in the elements of all; null for one that is None."""
    if not has_null:
        return pa.array([0, *accumulate(map(len, values))], pa.int32())
    begins = [0, *accumulate(len(value) if value else 0 for value in values)]
    known = [None if value is None else begin for value, begin in zip(values, begins, strict=False)]
    return pa.array([*known, begins[-1]], pa.int32())


def unknown_type(data_type: DataType) -> ConfigurationError:
    """Make the error for a type without a rule."""
    return ConfigurationError(
        f"--schema has a column of the type {data_type.simpleString()}, which no item can fill",
        "declare it as STRING or VARIANT, and convert it in the transform",
    )


def arrow_of(data_type: DataType) -> pa.DataType:
    """Give the type of a column.

    Raises:
        ConfigurationError: Arrow has no such type.
    """
    try:
        return to_arrow_type(data_type, timezone="UTC")
    except PySparkException as error:
        raise unknown_type(data_type) from error
