"""Finds the transform that an author wrote: a Python function, or a file of SQL."""

import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_worker.items.failures import brief
from xbus.errors import ConfigurationError
from xbus.headers import HeaderValue

VIEW = "items"
"""The name of an event's items in SQL."""

Made = TypeVar("Made")


class References:
    """The data that was loaded once for all events, by name; it lasts as long as the session."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()

    def cached(self, name: str, make: Callable[[], Made]) -> Made:
        """Give the first result of ``make`` under this name; a DataFrame is kept in memory."""
        with self._lock:
            if name not in self._made:
                made = make()
                self._made[name] = made.cache() if isinstance(made, DataFrame) else made
            return cast("Made", self._made[name])


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a transform.

    Attributes:
        spark: the session.
        envelope_id: the envelope that is worked on.
        event_id: the event that is worked on.
        type_name: its event type.
        options: what was given as ``--option name=value``.
        headers: those of the event and its envelope, by name; see ``xbus.recipient.Event``.
        partition_key: that of the event; None without one.
    """

    spark: SparkSession
    envelope_id: UUID
    event_id: UUID
    type_name: str
    options: Mapping[str, str] = field(default_factory=dict)
    _references: References = field(default_factory=References)
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    partition_key: str | None = None

    def cached(self, name: str, make: Callable[[], Made]) -> Made:
        """Load reference data once for all events::

            airlines = context.cached("airlines", lambda: context.spark.read.csv("airlines.csv", header=True))

        Args:
            name: under which it is kept.
            make: makes it when it is first asked for. A DataFrame is cached by Spark; small ones are broadcast.
        """
        return self._references.cached(name, make)


class Transform(Protocol):
    """``def transform(items: DataFrame, context: Context) -> DataFrame``."""

    def __call__(self, items: DataFrame, context: Context, /) -> DataFrame: ...


def load_function(name: str, folder: Path) -> Transform:
    """Import the function that ``module:function`` names.

    Args:
        name: as on the command line.
        folder: the folder to import from, beside the installed modules.

    Raises:
        ConfigurationError: it does not exist, or importing its module raised.
    """
    module_name, separator, function_name = name.partition(":")
    if not separator or not module_name or not function_name:
        raise ConfigurationError(f"--transform {name} does not name a function", "write it as module:function")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the author's module raises
        raise ConfigurationError(
            f"the module {module_name} can't be imported ({type(error).__name__}: {error})",
            _cure_of_import(error, module_name),
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"the module {module_name} has no function {function_name}", "correct --transform")
    _check_signature(name, function)
    # Executors on other machines lack the author's module: its code travels with the job.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return cast("Transform", function)


def _cure_of_import(error: Exception, module_name: str) -> str:
    """Word the next step after a failed import: the module or a part of it is missing, or it raised."""
    if isinstance(error, ModuleNotFoundError):
        is_itself = error.name == module_name
        return "start the worker where it is found, or install it" if is_itself else f"install {error.name}, or mend it"
    return "mend it; what needs a session of Spark, as arrow_udf with a type in text does, stands in the function"


def _check_signature(name: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(object(), object())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{name} can't be called with items and context ({error})",
            "write it as: def transform(items: DataFrame, context: Context) -> DataFrame",
        ) from error


def load_sql(file: Path) -> Transform:
    """Load the transform in a file of SQL: its last statement, a query over the view ``items``.

    The earlier statements run once, at the first event: they prepare reference data, as by
    ``CREATE TEMPORARY VIEW airlines USING csv OPTIONS (path 'airlines.csv', header 'true')``.

    Raises:
        ConfigurationError: the file can't be read, or has no statement.
    """
    try:
        statements = split_sql(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} can't be read ({error})", "name a readable file of SQL in UTF-8") from error
    if not statements:
        raise ConfigurationError(f"{file} has no statement", f"write a query over {VIEW} in it")
    return SqlTransform(*statements)


class SqlTransform:
    """Statements of SQL.

    Args:
        *statements: the last is the query, those before it are carried out once.
    """

    def __init__(self, *statements: str) -> None:
        *self._preparing, self._query = statements
        self._lock = threading.Lock()

    def check(self, spark: SparkSession) -> None:
        """Make sure that Spark can parse the statements; it looks for tables and files at the first event.

        Raises:
            ConfigurationError: it can't.
        """
        parser = spark._jsparkSession.sessionState().sqlParser()
        for number, statement in enumerate((*self._preparing, self._query), 1):
            try:
                parser.parsePlan(statement)
            except PySparkException as error:
                raise ConfigurationError(
                    f"statement {number} of --sql is no SQL ({brief(error)})", "correct it; the last one is the query"
                ) from error

    def __call__(self, items: DataFrame, context: Context, /) -> DataFrame:
        """Make the query over these items."""
        with self._lock:  # the view's name is the session's, and the query keeps the view's meaning from its beginning
            context.cached(f"{VIEW} {id(self)}", lambda: [context.spark.sql(each) for each in self._preparing])
            items.createOrReplaceTempView(VIEW)
            return context.spark.sql(self._query)


def split_sql(text: str) -> list[str]:
    """Split a text into statements: a semicolon at the end of a line ends one."""
    without_comments = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return [each.strip() for each in re.split(r";[ \t]*(?:\n|$)", without_comments) if each.strip()]
