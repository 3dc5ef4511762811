"""The order of what a transform made: as the items came where that is known, and the same at each attempt.

A plan that moves no rows from one partition to another keeps the order of what it read; then nothing is sorted. That is
the common case, and sorting would cost as much as the rest of the job.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_worker.items.columns import INDEX
from xbus.recipient import Refusal

KEEPING = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "ColumnarToRow",
        "Filter",
        "Generate",
        "InputAdapter",
        "MapInArrow",
        "MapInPandas",
        "Project",
    }
)
"""Steps of a plan that hand on each partition as it came."""

JOINING = frozenset({"BroadcastHashJoin", "BroadcastNestedLoopJoin"})
"""Joins that hand on one side as it came; the other is below a ``BroadcastExchange``."""


def ordered(made: DataFrame, order_by: str, items: int, source: str) -> DataFrame:
    """Order the rows partition by partition.

    Args:
        made: what the transform made.
        order_by: the column to sort by where ``_index`` was not kept; empty for none.
        items: how many items the event has.
        source: what the scan of the event's items is called in the plan.

    Raises:
        Refusal: the column is not there.
    """
    if INDEX in made.columns:
        return made if is_narrow(made, source) else by_index(made, items)
    if not order_by:
        return made
    if order_by not in made.columns:
        raise Refusal(f"the transform made no column {order_by} to order by, only {', '.join(made.columns)}")
    return made.orderBy(sf.col(f"`{order_by}`"))


def by_index(made: DataFrame, items: int) -> DataFrame:
    """Sort the rows by ``_index``; those without one come last.

    The worker knows all indexes, so it cuts them into even ranges. Spark would read everything once more for that.
    """
    partitions = int(made.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    known = (sf.col(INDEX) >= 0) & (sf.col(INDEX) < items)
    place = sf.when(known, sf.floor(sf.col(INDEX) * partitions / max(items, 1))).otherwise(partitions - 1)
    last = sf.when(sf.col(INDEX) >= 0, sf.col(INDEX))
    return made.repartitionById(partitions, place.cast("int")).sortWithinPartitions(last.asc_nulls_last())


def is_narrow(made: DataFrame, source: str) -> bool:
    """Check whether each row stays in its partition, and in its place among the others."""
    plan = made._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.initialPlan()
    return _keeps_order(plan, source)


def _keeps_order(node: Any, source: str) -> bool:
    name = node.nodeName()
    if name.startswith("WholeStageCodegen"):
        name = "Project"
    children = [node.children().apply(number) for number in range(node.children().size())]
    if name in JOINING:
        children = [child for child in children if child.nodeName() != "BroadcastExchange"]
    elif not children:
        return source in name
    elif name not in KEEPING:
        return False
    return len(children) == 1 and _keeps_order(children[0], source)
