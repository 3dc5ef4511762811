"""The type of all objects."""

from collections.abc import Mapping
from typing import TypeAlias

JsonObject: TypeAlias = Mapping[str, object]
