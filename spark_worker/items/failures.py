"""Classifies an error of a job: permanent where the same job would fail again, else transient.

Errors of executors arrive as text, with the traceback of the Python that failed there. So they are told apart by its
words. An error of the bus has its class there, and its code in a line of its own.
"""

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from spark_worker.items.errors import BadOutput, ClusterUnreachable, NeverDone
from xbus import errors
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.objects.stores import MISSING
from xbus.errors import (
    ConfigurationError,
    Failed,
    JournalError,
    JournalUnavailable,
    MissingExtra,
    SchemaError,
    XbusError,
)
from xbus.recipient import Refusal

CAUSE_CHARACTERS = 500

CLUSTER_GONE = (
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
    "All masters are unresponsive",
    "Master removed our application",
    "Error while sending or receiving",
    "Answer from Java side is empty",
)
"""The words of Spark when its cluster or driver is gone."""

PASSING = (
    "ExecutorLostFailure",
    "FetchFailed",
    "java.lang.OutOfMemoryError",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "SparkOutOfMemoryError",
    "UNABLE_TO_ACQUIRE_MEMORY",
)
"""The words of trouble with the machine and not the job: an executor, or memory that others take."""

NO_ROOM = ("No space left on device", "Disk quota exceeded")
"""The words of the system for a full disk, and those of Spark, Java and Python."""

CANCELLED = ("[SPARK_JOB_CANCELLED]", "[OPERATION_CANCELED]")
"""Spark's own names for a cancelled job. Authors use the word in errors, too."""

LOST = frozenset({DAMAGED, MISSING})
"""The codes of the journal for items that no further attempt gets back. Other codes pass, as with a new attempt."""

_OF_BUS = re.compile(r"^xbus\.errors\.(\w+): (.*)$", re.MULTILINE)
_CODE = re.compile(r"^\[(\w+)\]\s*$", re.MULTILINE)
_FULL = re.compile(rf"^.*\b(\w+(?:Exception|Error): .*?(?:{'|'.join(NO_ROOM)}).*)$", re.MULTILINE)
_HOST = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \S+\)")
_RAISED = re.compile(r"^(?:\w+\.)*[A-Z]\w*[a-z]\w*: .*$", re.MULTILINE)


def of_job(error: BaseException, scratch: str = "") -> XbusError:
    """Translate the error of a running job for the bus.

    Args:
        scratch: the folders of Spark for data that does not fit into memory, for whoever has to make room there.

    Returns:
        A ``Refusal`` if the same job would fail again, otherwise a ``Failed`` or ``JournalUnavailable``.
    """
    if isinstance(error, XbusError) and (known := _of_bus(error)) is not None:
        return known
    if isinstance(error, BadOutput):
        return Refusal(str(error))
    text = str(error)
    if isinstance(error, (Py4JNetworkError, ConnectionError)) or _says(text, CLUSTER_GONE):
        return ClusterUnreachable(f"Spark is gone ({brief(error)})", "see that the cluster runs")
    if (known := _of_bus(error)) is not None:
        return known
    if f"{BadOutput.__module__}.{BadOutput.__name__}" in text:
        return Refusal(raised(text))
    if _says(text, NO_ROOM):
        return disk_full(text, scratch)
    if _says(text, PASSING):
        return Failed(f"the job failed ({brief(error)})", "see the logs of Spark", code="job_failed")
    if _says(text, CANCELLED):
        return Failed("the job was cancelled", code="job_cancelled")
    if isinstance(error, OSError):
        return Failed(f"the machine can't do it now ({error})", code="job_failed")
    return from_author(error)


def from_author(error: BaseException) -> XbusError:
    """Translate an error of the transform for the bus: a refusal, unless Spark is in trouble."""
    # The transform may have Spark read the items, so an executor meets the journal within it, too.
    if (known := _of_bus(error)) is not None:
        return known
    if _says(str(error), NO_ROOM):
        return disk_full(str(error))
    if isinstance(error, (Py4JNetworkError, ConnectionError)) or _says(
        str(error), (*CLUSTER_GONE, *PASSING, *CANCELLED)
    ):
        return Failed(f"the transform failed ({brief(error)})", code="job_failed")
    return Refusal(f"the transform failed: {brief(error)}"[:CAUSE_CHARACTERS])


def _of_bus(error: BaseException) -> XbusError | None:
    """Translate an error of the bus by its class and its code; None for all others.

    Args:
        error: the error itself, as in the driver, or one of Spark that has the traceback of an executor in its text.
    """
    if isinstance(error, (Refusal, Failed, JournalUnavailable)):
        return error
    if isinstance(error, XbusError):
        return _classified(type(error), error.cause, error.next_step, error.code)
    text = str(error)
    # An error may have others as its cause, whose tracebacks come before its own.
    for found in reversed(list(_OF_BUS.finditer(text))):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, XbusError):
            code = _CODE.search(text[found.end() :].partition("\n\n")[0])
            # The line has the next step, too.
            known = _classified(kind, found[2][:CAUSE_CHARACTERS], "", kind.default_code if code is None else code[1])
            if known is not None:
                return known
    return None


def _classified(kind: type[XbusError], cause: str, next_step: str, code: str) -> XbusError | None:
    """Make the failure of a job from the parts of an error of the bus.

    Returns:
        None where the class does not say whether the same job may go well later.
    """
    if issubclass(kind, JournalUnavailable):
        return JournalUnavailable(cause, next_step, code=code)
    if issubclass(kind, (ConfigurationError, MissingExtra)) or (issubclass(kind, JournalError) and code in LOST):
        return NeverDone(f"{cause}: {next_step}" if next_step else cause, code)
    if issubclass(kind, (JournalError, SchemaError, Failed)):
        return Failed(cause, next_step, code=code)
    return None


def disk_full(text: str, scratch: str = "") -> Failed:
    """Make the failure of a full disk on which Spark, or the transform, works.

    Args:
        text: the text of the error.
        scratch: as of ``of_job``.
    """
    said = _FULL.findall(text)
    host = _HOST.search(text)
    where = f" on {host[1]}" if host else ""
    what = (said[-1] if said else text.strip().splitlines()[0])[:CAUSE_CHARACTERS]
    folder = f"; Spark keeps what it moves in {scratch}" if scratch else ""
    return Failed(f"a disk{where} is full ({what})", f"make room there{folder}", code="disk_full")


def brief(error: BaseException) -> str:
    """Shorten the text of an error by the stacks of Java and Python."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString()) if error.java_exception is not None else text
    if "Traceback (most recent call last)" in text:
        return raised(text)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    name = "" if isinstance(error, (PySparkException, Py4JError)) else f"{type(error).__name__}: "
    return f"{name}{line}"[:CAUSE_CHARACTERS]


def raised(text: str) -> str:
    """Find the end of the last Python traceback in a text: ``ValueError: no such airline``."""
    found = [match.group(0).strip() for match in _RAISED.finditer(text)]
    of_python = [line for line in found if not line.startswith(("org.apache.", "java.", "pyspark.", "py4j."))]
    line = (of_python or found or text.strip().splitlines() or [""])[-1]
    return line.removeprefix("xbus.errors.").removeprefix("spark_worker.items.errors.")[:CAUSE_CHARACTERS]


def _says(text: str, any_of: tuple[str, ...]) -> bool:
    return any(each in text for each in any_of)
