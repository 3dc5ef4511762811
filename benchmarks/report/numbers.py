"""Writes numbers for people."""

import math

DIGITS = 3


def written(number: float | None) -> str:
    """Write a number with three digits that count, or more before the point; a dash where there is none."""
    if number is None:
        return "–"
    if number == 0:
        return "0"
    before_point = math.floor(math.log10(abs(number))) + 1
    decimals = max(0, DIGITS - max(before_point, 0)) if abs(number) >= 0.01 else DIGITS
    rounded = round(number, DIGITS - before_point) if before_point > DIGITS else number
    return f"{rounded:,.{decimals}f}"
