"""The options of a reader."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_worker.source.columns import COLUMNS, parse_columns
from spark_worker.source.places import LogEnd, Place, parse_place
from spark_worker.spark.options import SparkOptions

COMMON = ("config", "eventType", "columns", "partitions", "failOnDataLoss", "retrySeconds")
OF_BATCH = (*COMMON, "from", "to")
OF_STREAM = (*COMMON, "startingPosition", "maxItemsPerTrigger")

RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a reader.

    Args:
        url: the database of the journal.
        event_type: the name of the event type that is read.
        columns: which columns come, in their order.
        partitions: how many parts the items are cut into; 0 for as many as suit their number.
        retry_seconds: how long a database that is away is asked again.
        fail_on_data_loss: whether it is an error that something was removed before it was read.
    """

    url: str = field(repr=False)
    event_type: str
    columns: tuple[str, ...]
    partitions: int
    retry_seconds: float
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True)
class BatchOptions(SourceOptions):
    """The options of a reader that reads once.

    Args:
        begin: where it begins.
        end: where it ends: at a position, which is still read, or before a moment.
    """

    begin: Place
    end: Place


@dataclass(frozen=True, slots=True)
class StreamOptions(SourceOptions):
    """The options of a reader that goes on reading.

    Args:
        start: where a new query begins.
        max_items: a micro-batch ends before the envelope with which it would hold more; 0 for no limit.
    """

    start: Place
    max_items: int


def batch_options(given: Mapping[str, str], columns: tuple[str, ...]) -> BatchOptions:
    """Read the options of ``spark.read``.

    Args:
        given: as Spark hands them over.
        columns: which columns come.

    Raises:
        ConfigurationError: an option is missing, unknown or can't be used.
    """
    options = _checked(given, OF_BATCH)
    return BatchOptions(
        *_common(options, columns, fail_on_data_loss=False),
        begin=parse_place("from", options.text("from", LogEnd.EARLIEST)),
        end=parse_place("to", options.text("to", LogEnd.LATEST)),
    )


def stream_options(given: Mapping[str, str], columns: tuple[str, ...]) -> StreamOptions:
    """Read the options of ``spark.readStream``.

    Args:
        given: as Spark hands them over.
        columns: which columns come.

    Raises:
        ConfigurationError: an option is missing, unknown or can't be used.
    """
    options = _checked(given, OF_STREAM)
    return StreamOptions(
        *_common(options, columns, fail_on_data_loss=True),
        start=parse_place("startingPosition", options.text("startingPosition", LogEnd.EARLIEST)),
        max_items=options.count("maxItemsPerTrigger", 0),
    )


def chosen_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Choose the columns: those of option ``columns``, otherwise all.

    Raises:
        ConfigurationError: no column has this name.
    """
    text = SparkOptions(given).text("columns")
    return parse_columns(text) if text else tuple(COLUMNS)


def _checked(given: Mapping[str, str], known: tuple[str, ...]) -> SparkOptions:
    options = SparkOptions(given)
    options.refuse_others(known)
    return options


def _common(
    options: SparkOptions, columns: tuple[str, ...], *, fail_on_data_loss: bool
) -> tuple[str, str, tuple[str, ...], int, float, bool]:
    return (
        options.configuration().database.url,
        options.needed("eventType", "orders"),
        columns,
        options.count("partitions", 0),
        options.seconds("retrySeconds", RETRY_SECONDS),
        options.switch("failOnDataLoss", fail_on_data_loss),
    )
