"""From the bytes of an event's items to the bytes that come of them: the same for large events and for small ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegralType

from spark_worker.items.columns import CORRUPT, ENVELOPE, EVENT, INDEX, RAW
from spark_worker.items.errors import ItemError, ItemsRefused
from spark_worker.items.failures import from_author
from spark_worker.items.formats import Format
from spark_worker.transform.ordering import ordered
from spark_worker.transform.transforms import Context, Transform
from xbus.recipient import Refusal

TOLD_MILLISECONDS = 10_000
"""Seconds that Spark has for its observation. After that the items are read once more."""


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """The planned output of an event; nothing has run yet.

    Attributes:
        rows: ``_index`` and ``data``, partition by partition in order.
    """

    rows: DataFrame
    _items: int
    _parsed: DataFrame
    _format: Format
    _seen: Observation | None
    _most_named: int

    def check(self) -> None:
        """Make sure, once the rows were read, that all items fitted the schema.

        Raises:
            ItemsRefused: some did not; the error names the first ones with their faults.
        """
        if self._seen is None or not self._items:
            return
        told = _told(self._seen, self.rows)
        # An action of the transform, such as take(1), may have seen some only; a sort sees them twice.
        corrupt = told["corrupt"] if told.get("items") == self._items else self._count()
        if not corrupt:
            return
        # Read again only now: most events have none.
        found = self._parsed.where(sf.col(CORRUPT).isNotNull()).orderBy(INDEX).select(INDEX, CORRUPT, RAW)
        first = found.limit(self._most_named).collect()
        errors = [self._error(row[INDEX], row[CORRUPT], bytes(row[RAW])) for row in first]
        named = f", the first {self._most_named} are named" if corrupt > self._most_named else ""
        raise ItemsRefused(f"{corrupt} of the items do not fit the schema{named}", errors)

    def _count(self) -> int:
        """Count the items that do not fit, among all."""
        return self._parsed.where(sf.col(CORRUPT).isNotNull()).count()

    def _error(self, index: int | None, corrupt: str, data: bytes) -> ItemError:
        return ([] if index is None else [index], self._format.explain(data, corrupt))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Makes the outputs of a worker.

    Args:
        items_format: what items are written in.
        transform: the author's.
        order_by: the column that gives the order where ``_index`` is not kept; empty for none.
        keep_corrupt: whether items that don't fit the schema come to the transform, with their text in ``_corrupt``;
            else they are refused.
        most_named: how many items that don't fit the schema are looked at, and named.
    """

    items_format: Format
    transform: Transform
    order_by: str = ""
    keep_corrupt: bool = False
    most_named: int = 1_000

    def output(self, items: DataFrame, context: Context, number: int, end: int, source: str) -> PlannedOutput:
        """Plan the output of an event.

        Args:
            items: ``_index`` and ``data``, partition by partition in order.
            context: of the event.
            number: the number of items.
            end: their indices are below it.
            source: the name of the scan of ``items`` in Spark's plans.

        Raises:
            Refusal: the transform raised, or its result can't become items.
        """
        parsed = self.items_format.parse(items)
        observed, seen = self._observed(parsed)
        named = {ENVELOPE: sf.lit(str(context.envelope_id)), EVENT: sf.lit(str(context.event_id))}
        made = self._transformed(observed.drop(RAW).withColumns(named), context)
        rows = self.items_format.encode(ordered(made, self.order_by, end, source))
        return PlannedOutput(rows, number, parsed, self.items_format, seen, self.most_named)

    def _observed(self, parsed: DataFrame) -> tuple[DataFrame, Observation | None]:
        """Prepare the rows that the transform sees, and the observation of all on the way there.

        This has a second use: Spark moves no filter of the transform's below it, where each item would be parsed once
        for the filter and once more for the rest.
        """
        seen = Observation()
        corrupt = sf.count_if(sf.col(CORRUPT).isNotNull()).alias("corrupt")
        observed = parsed.observe(seen, corrupt, sf.count(sf.lit(1)).alias("items"))
        if self.keep_corrupt:
            return observed, None
        return observed.where(sf.col(CORRUPT).isNull()).drop(CORRUPT), seen

    def _transformed(self, items: DataFrame, context: Context) -> DataFrame:
        try:
            made = self.transform(items, context)
        except (Exception, SystemExit) as error:  # whatever the author's code raises; exit() must not end the worker
            raise from_author(error) from error
        if not isinstance(made, DataFrame):
            raise Refusal(f"the transform returned a {type(made).__name__}, not a DataFrame")
        try:
            kinds = {field.name: field.dataType for field in made.schema}
        except PySparkException as error:
            raise from_author(error) from error
        if INDEX in kinds and not isinstance(kinds[INDEX], IntegralType):
            raise Refusal(f"the transform made {INDEX} a {kinds[INDEX].simpleString()}: keep it as it came, or drop it")
        return made


def _told(seen: Observation, rows: DataFrame) -> Mapping[str, int]:
    """Read the observation; empty if Spark gives none, as for items that it read as an RDD."""
    jvm_side: Any = seen._jo
    session: Any = rows.sparkSession._jsparkSession
    try:
        # Spark reports it beside the job, a moment later.
        session.sparkContext().listenerBus().waitUntilEmpty(TOLD_MILLISECONDS)
        return seen.get if jvm_side.future().isCompleted() else {}
    except Py4JJavaError:  # it is too busy to tell, or found that nothing comes out, and left the rest
        return {}
