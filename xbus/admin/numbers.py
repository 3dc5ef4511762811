"""Numbers as options and arguments of commands."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds, neither infinite nor ``nan``, which no bound keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


ROW_ID = click.IntRange(1, 2**63 - 1)
"""The id of a row, as the database counts them."""
