"""The options of a writer."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.types import BinaryType, StringType, StructType

from spark_worker.spark.options import BAD_OPTION, SparkOptions, bad_option
from xbus.errors import ConfigurationError, Refused
from xbus.headers import Headers, check_partition_key, pack_headers, unpack_headers

PASSWORD_VARIABLE = "XBUS_PASSWORD"  # noqa: S105 - the name of the variable

KNOWN = (
    *("config", "front", "login", "password", "eventType"),
    *("key", "orderingKey", "headers", "partitionKey", "stagingDir", "inlineBytes", "retrySeconds"),
)

OF_SPARK = ("checkpointLocation", "path", "queryName")
"""The options that Spark itself hands over."""

INLINE_BYTES = 256 * 1024
"""A task that stages no more than this needs no file: its rows travel with its message to the driver."""

RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writer.

    Args:
        url: the front of the bus.
        login: of the emitter that sends.
        password: of that emitter.
        event_type: the event type to send.
        staging: a folder that the driver and all executors see, by its path or as a URL that Arrow knows.
        inline_bytes: up to so many bytes a task needs no file there.
        key: what the emitter calls the envelope of a batch writer, for good; empty for no name.
        ordering_key: of the envelopes; empty for none.
        retry_seconds: how long a bus that is away is asked again; 0 for not at all.
        headers: of each envelope.
        partition_key: of each event; empty for none.
    """

    url: str
    login: str
    password: str = field(repr=False)
    event_type: str
    staging: str
    inline_bytes: int
    key: str
    ordering_key: str
    retry_seconds: float
    headers: Headers = field(default_factory=dict)
    partition_key: str = ""


def batch_sink_options(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    """Read the options of ``df.write``.

    Args:
        given: as Spark hands them over.
        schema: of the DataFrame.
        overwrite: whether Spark is to replace existing data.

    Raises:
        ConfigurationError: an option is missing or invalid, the column ``data`` is missing, or the mode is not append.
    """
    if overwrite:
        raise ConfigurationError("sent envelopes can't be overwritten", 'write with mode("append")', code=BAD_OPTION)
    return _read(given, schema)


def stream_sink_options(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Read the options of ``df.writeStream``.

    Args:
        given: as Spark hands them over.
        schema: of the DataFrame.

    Raises:
        ConfigurationError: an option is missing or invalid, or the column ``data`` is missing.
    """
    if SparkOptions(given).text("key"):
        raise ConfigurationError(
            "a stream makes the keys of its envelopes itself, from the query and the batch",
            "leave option key out",
            code=BAD_OPTION,
        )
    return _read(given, schema)


def _read(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = SparkOptions(given)
    options.refuse_others(KNOWN, OF_SPARK)
    _check_data(schema)
    return SinkOptions(
        options.text("front") or options.configuration().zmq.frontsocket,
        options.needed("login", "emitter_1"),
        _password(options),
        options.needed("eventType", "orders"),
        options.text("stagingDir") or _staging_beside(options.text("checkpointLocation")),
        options.count("inlineBytes", INLINE_BYTES),
        options.text("key"),
        options.text("orderingKey"),
        options.seconds("retrySeconds", RETRY_SECONDS),
        _headers(options),
        _partition_key(options),
    )


def _headers(options: SparkOptions) -> Headers:
    text = options.text("headers")
    if not text:
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise bad_option("headers", text, 'is no object in JSON, such as {"schema": "orders/3"}')
    try:
        return unpack_headers(pack_headers(given))
    except Refused as refusal:
        raise ConfigurationError(f"option headers: {refusal.cause}", refusal.next_step, code=BAD_OPTION) from refusal


def _partition_key(options: SparkOptions) -> str:
    key = options.text("partitionKey")
    try:
        return check_partition_key(key or None) or ""
    except Refused as refusal:
        raise ConfigurationError(f"option partitionKey: {refusal}", code=BAD_OPTION) from refusal


def _password(options: SparkOptions) -> str:
    password = options.text("password") or os.environ.get(PASSWORD_VARIABLE, "")
    if not password:
        raise ConfigurationError("option password is missing", f"give it, or set {PASSWORD_VARIABLE}", code=BAD_OPTION)
    return password


def _check_data(schema: StructType) -> None:
    kinds = {column.name: column.dataType for column in schema.fields}
    if not isinstance(kinds.get("data"), BinaryType | StringType):
        raise ConfigurationError(
            f"there is no column data of type binary or string, but {schema.simpleString()}",
            'make one of each row, as by to_json(struct("*")).alias("data")',
            code=BAD_OPTION,
        )


def _staging_beside(checkpoint: str) -> str:
    """Choose the default staging folder: beside the checkpoint, which all machines see, or on one machine alone."""
    path = checkpoint.removeprefix("file://")
    if path and "://" not in path and not path.startswith("file:"):
        return str(Path(path).absolute() / "xbus-staging")
    return str(Path(tempfile.gettempdir()) / f"xbus-staging-{os.getuid()}")
