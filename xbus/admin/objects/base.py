"""The type of all objects, and the plain way from a value to its object."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JsonObject: TypeAlias = Mapping[str, object]


def shown(value: "DataclassInstance", *hidden: str, **names: str) -> dict[str, object]:
    """Make an object of all fields of a value, in their order.

    Args:
        hidden: fields that the object does not have.
        names: the names of fields that are called otherwise in the object.
    """
    found = (field.name for field in fields(value) if field.name not in hidden)
    return {names.get(name, name): getattr(value, name) for name in found}
