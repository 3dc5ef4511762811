"""The comparison: by key, what of a data set the bus carried, and whether as it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_worker.items.columns import CORRUPT, DATA, INDEX
from spark_worker.items.formats import make_format
from xbus.errors import Refused

FAULT = "_fault"
MISSING, INCORRECT, CORRECT, EXTRA = "missing", "incorrect", "correct", "extra"

_THERE = "_there"
_CARRIED = "_carried"
_VALUES = "_values"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison: how much of a data set the bus carried.

    Args:
        total: rows of the data set.
        missing: of them, those whose key the bus never carried.
        incorrect: those whose key it carried last with other values.
        correct: all others.
        per_cent: how many of 100 are correct, to four places; 100 only where all are, as of an empty data set.
        extra: keys that the bus carried and the data set lacks.
        unreadable: items that don't fit the columns.
    """

    total: int
    missing: int
    incorrect: int
    correct: int
    per_cent: float
    extra: int
    unreadable: int


def check_columns(data: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Choose the columns whose values are compared.

    Args:
        data: the data set.
        keys: what tells its rows apart.
        columns: those that are asked for; none for all others.

    Raises:
        Refused: it lacks one (``unknown_column``), or two of its rows have the same key (``key_not_unique``).
    """
    for name in (*keys, *columns):
        if name not in data.columns:
            raise Refused(
                f"the data set has no column {name}", f"it has {', '.join(data.columns)}", code="unknown_column"
            )
    twice = data.groupBy(*keys).count().where(sf.col("count") > 1).first()
    if twice is not None:
        key = ", ".join(f"{name}={twice[name]}" for name in keys)
        raise Refused(
            f"{twice['count']} rows of the data set have the key {key}", "add to --key", code="key_not_unique"
        )
    return [name for name in columns or data.columns if name not in keys]


def parse_items(items: DataFrame, data: DataFrame, names: Sequence[str], items_format: str, schema: str) -> DataFrame:
    """Parse the items that the bus carried into columns, with ``_corrupt``.

    Args:
        items: of the source ``xbus``: position, event_id, index, data.
        data: the data set, whose types the columns get.
        names: the columns that are wanted.
        items_format: as of the worker.
        schema: of the items in DDL; empty where they are read as the columns of the data set.
    """
    place = sf.struct("position", "event_id", "index")
    ddl = schema or ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in data.schema if f.name in names)
    parsed = make_format(items_format, ddl).parse(items.select(place.alias(INDEX), DATA))
    types = {field.name: field.dataType for field in data.schema}
    return parsed.select(INDEX, CORRUPT, *(sf.col(f"`{name}`").cast(types[name]).alias(name) for name in names))


def compare(data: DataFrame, carried: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Set what the bus carried beside a data set. Of several items of one key the last one counts.

    Returns:
        The columns of the data set and ``_fault``: missing, incorrect, correct or extra.
    """
    last = (
        carried.where(sf.col(CORRUPT).isNull())
        .groupBy(*(sf.col(f"`{key}`").alias(f"_key_{number}") for number, key in enumerate(keys)))
        .agg(sf.max_by(sf.struct(sf.lit(True).alias(_CARRIED), *map(_quoted, columns)), INDEX).alias(_VALUES))
    )
    there = data.withColumn(_THERE, sf.lit(True))
    same_key = reduce(
        Column.__and__, [_quoted(key).eqNullSafe(sf.col(f"_key_{number}")) for number, key in enumerate(keys)]
    )
    same_values = reduce(
        Column.__and__, [_quoted(name).eqNullSafe(sf.col(f"{_VALUES}.`{name}`")) for name in columns], sf.lit(True)
    )
    fault = (
        sf.when(sf.col(_THERE).isNull(), EXTRA)
        .when(sf.col(_VALUES).isNull(), MISSING)
        .when(same_values, CORRECT)
        .otherwise(INCORRECT)
    )
    return there.join(last, same_key, "full_outer").select(*map(_quoted, data.columns), fault.alias(FAULT))


def count(compared: DataFrame, carried: DataFrame) -> Verdict:
    """Count the results."""
    found = {row[FAULT]: row["count"] for row in compared.groupBy(FAULT).count().collect()}
    missing, incorrect, correct = (found.get(fault, 0) for fault in (MISSING, INCORRECT, CORRECT))
    total = missing + incorrect + correct
    unreadable = carried.where(sf.col(CORRUPT).isNotNull()).count()
    return Verdict(total, missing, incorrect, correct, per_cent(correct, total), found.get(EXTRA, 0), unreadable)


def per_cent(correct: int, total: int) -> float:
    """Compute the correct part of 100, cut and not rounded: one wrong row of millions must show."""
    return (1_000_000 * correct // total) / 10_000 if total else 100.0


def check_readable(verdict: Verdict) -> None:
    """Check that items can be read: otherwise all rows would be missing, and might be emitted again.

    Raises:
        Refused: items exist, and none of them fits the columns (``unreadable_items``).
    """
    if verdict.unreadable and not (verdict.correct or verdict.incorrect or verdict.extra):
        raise Refused(
            f"none of the {verdict.unreadable} items that the bus carried fits the columns",
            "give their format by --format, and their columns by --schema",
            code="unreadable_items",
        )


def _quoted(name: str) -> Column:
    return sf.col(f"`{name}`")
