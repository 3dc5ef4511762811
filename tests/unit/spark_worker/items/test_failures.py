"""What errors of a job mean to the bus."""

import traceback
from collections.abc import Callable

import pytest

from spark_worker.items.errors import BadOutput, ClusterUnreachable, ItemsRefused, NeverDone
from spark_worker.items.failures import from_author, of_job
from xbus import errors
from xbus.errors import Failed, JournalError, JournalUnavailable, XbusError
from xbus.recipient import Refusal
from xbus.rpc.codec import pack

OF_A_TASK = """\
Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 in stage 3.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/pyspark/worker.py", line 1, in main
    process()
  File "/lib/there.py", line 7, in there
    raise ValueError("inner")
ValueError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/lib/here.py", line 9, in here
    raise {name}("why: because")
{name}: why: because

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Driver stacktrace:
"""


class OfSpark(Exception):
    """Stands for what PySpark raises."""


def of_task(name: str) -> Exception:
    return OfSpark(OF_A_TASK.format(name=name))


def test_what_the_author_raises_in_a_task_is_permanent_and_told() -> None:
    error = of_job(of_task("app.rules.NoSuchAirline"))

    assert isinstance(error, Refusal)
    assert error.cause == "the transform failed: app.rules.NoSuchAirline: why: because"


def test_an_author_may_speak_of_what_was_cancelled() -> None:
    error = of_job(OfSpark(OF_A_TASK.format(name="ValueError").replace("because", "order 7 was cancelled")))

    assert isinstance(error, Refusal)
    assert error.cause == "the transform failed: ValueError: why: order 7 was cancelled"


def test_a_database_that_is_away_is_transient() -> None:
    error = of_job(of_task("xbus.errors.JournalUnavailable"))

    assert isinstance(error, JournalUnavailable)
    assert str(error) == "why: because", "the next step is in it already"


def test_an_attempt_that_is_over_is_no_fault_of_the_event() -> None:
    assert isinstance(of_job(of_task("xbus.errors.JournalError")), Failed)
    assert isinstance(of_job(JournalError("the attempt is over")), Failed)


def test_a_row_that_can_be_no_item_is_permanent() -> None:
    assert isinstance(of_job(of_task("spark_worker.items.errors.BadOutput")), Refusal)
    error = of_job(BadOutput("an item is null"))
    assert isinstance(error, Refusal)
    assert error.cause == "an item is null"


OF_AN_EXECUTOR = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/lib/xbus/broker/journal/objects/remote.py", line 31, in get
    raise AWAY
xbus.errors.JournalUnavailable: the object store is away: see that it runs
[objects_unavailable]

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/lib/spark_worker/journal/reading.py", line 73, in read
    yield from self.made(reader.segments(partition.value))
  File "/lib/xbus/broker/journal/database/compression.py", line 80, in verified
    raise JournalError(
xbus.errors.{name}: stored items are damaged: find them by xbus fsck
[{code}]"""
"""The text of a ``PythonException`` of PySpark 4, and before it the traceback of the error's own cause."""

STACK = "\n\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)\nDriver stacktrace:\n"
"""What follows where an error of Spark's own has the text of the executor in its message."""

OF_CODES = {
    ("JournalError", "segment_damaged"): NeverDone,
    ("JournalError", "object_missing"): NeverDone,
    ("ConfigurationError", "bad_configuration"): NeverDone,
    ("MissingExtra", "extra_missing"): NeverDone,
    ("JournalError", "segments_gone"): Failed,
    ("JournalError", "attempt_not_building"): Failed,
    ("JournalError", "journal_error"): Failed,
    ("SchemaError", "bad_schema"): Failed,
    ("Failed", "query_unknown"): Failed,
    ("JournalUnavailable", "objects_unavailable"): JournalUnavailable,
    ("JournalRefused", "journal_unavailable"): JournalUnavailable,
}


@pytest.mark.parametrize("mean", [of_job, from_author])
@pytest.mark.parametrize("stack", ["", STACK])
@pytest.mark.parametrize(("said", "kind"), OF_CODES.items())
def test_an_error_of_the_bus_in_an_executor_keeps_its_code(
    said: tuple[str, str], kind: type[XbusError], stack: str, mean: Callable[[BaseException], XbusError]
) -> None:
    name, code = said
    error = mean(OfSpark(OF_AN_EXECUTOR.format(name=name, code=code) + stack))

    assert (type(error), error.code) == (kind, code)
    assert str(error) == "stored items are damaged: find them by xbus fsck"


@pytest.mark.parametrize("mean", [of_job, from_author])
@pytest.mark.parametrize(("said", "kind"), OF_CODES.items())
def test_an_error_of_the_bus_in_the_driver_keeps_its_code(
    said: tuple[str, str], kind: type[XbusError], mean: Callable[[BaseException], XbusError]
) -> None:
    name, code = said
    error = mean(getattr(errors, name)("stored items are damaged", "find them by xbus fsck", code=code))

    assert isinstance(error, kind)
    assert isinstance(error, Refusal) is (kind is NeverDone)
    assert (error.code, str(error)) == (code, "stored items are damaged: find them by xbus fsck")


def test_the_text_of_an_error_as_python_writes_it_has_the_code() -> None:
    """Guards the form of the note on which the above builds."""
    damaged = JournalError("an item differs", "run xbus fsck", code="segment_damaged")
    error = of_job(OfSpark("".join(traceback.format_exception(damaged))))

    assert (type(error), error.code, error.cause) == (NeverDone, "segment_damaged", "an item differs: run xbus fsck")


OF_A_DISK = """\
An error occurred while calling o115.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 1.0 (TID 1) (node-7 executor 3): java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)

Driver stacktrace:
"""


def test_a_full_disk_is_transient_and_told_with_where_it_is() -> None:
    error = of_job(OfSpark(OF_A_DISK), "/scratch")

    assert isinstance(error, Failed)
    assert not isinstance(error, Refusal)
    assert error.code == "disk_full"
    assert str(error) == (
        "a disk on node-7 is full (IOException: No space left on device): "
        "make room there; Spark keeps what it moves in /scratch"
    )


@pytest.mark.parametrize("mean", [of_job, from_author])
def test_a_full_disk_is_told_with_the_file_where_that_is_known(mean: Callable[[BaseException], XbusError]) -> None:
    error = mean(OSError(28, "No space left on device", "/tmp/notes.txt"))

    assert (type(error), error.code) == (Failed, "disk_full")
    assert error.cause == "a disk is full ([Errno 28] No space left on device: '/tmp/notes.txt')"


@pytest.mark.parametrize(
    "text",
    [
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "java.lang.OutOfMemoryError: Java heap space",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job tags nightly SQLSTATE: XXKDA",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled killed via the Web UI SQLSTATE: XXKDA",
    ],
)
def test_trouble_of_the_machine_is_transient(text: str) -> None:
    """Also where the transform itself had Spark run something."""
    for mean in (of_job, from_author):
        error = mean(OfSpark(f"Job aborted due to stage failure: {text}"))

        assert isinstance(error, Failed)
        assert not isinstance(error, Refusal)


@pytest.mark.parametrize("error", [ConnectionRefusedError("py4j"), OfSpark("SparkContext was shut down")])
def test_spark_that_is_gone_is_told_from_a_job_that_failed(error: Exception) -> None:
    assert isinstance(of_job(error), ClusterUnreachable)


def test_a_full_disk_of_the_driver_is_transient() -> None:
    assert isinstance(of_job(OSError(28, "No space left on device")), Failed)


def test_a_column_that_is_missing_is_permanent() -> None:
    error = of_job(OfSpark("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `amout` cannot be resolved.\n'Project ..."))

    assert isinstance(error, Refusal)
    assert "`amout`" in error.cause
    assert "Project" not in error.cause


@pytest.mark.parametrize("error", [Refusal("no"), Failed("later"), JournalUnavailable("later")])
def test_what_is_classed_already_stays_as_it_is(error: Exception) -> None:
    assert of_job(error) is error


def test_items_are_refused_each_with_its_reason() -> None:
    error = ItemsRefused("2 of the items do not fit", [([3], "no JSON"), ([8], "no id")])

    assert error.errors == [([3], "no JSON (2 of the items do not fit)"), ([8], "no id")]
    assert error.indices == [3, 8]


LONE = "caf\udce9"
"""The name of a file in Latin-1, as Python reads it from a folder."""


@pytest.mark.parametrize("translate", [of_job, from_author])
@pytest.mark.parametrize(
    "error",
    [
        *(
            ValueError(LONE),
            FileNotFoundError(2, "gone", LONE),
            OfSpark(LONE),
            OfSpark(f"No space left on device {LONE}"),
        ),
        *(OfSpark(f"stopped SparkContext {LONE}"), OfSpark(OF_A_TASK.format(name=LONE)), BadOutput(LONE)),
        *(JournalError(LONE), Failed(LONE), Refusal(LONE), ValueError("\0"), SystemExit(LONE)),
    ],
    ids=ascii,
)
def test_the_texts_of_a_translated_error_can_be_packed(
    translate: Callable[[BaseException], XbusError], error: BaseException
) -> None:
    """The worker sends them to the broker."""
    made = translate(error)
    pack([made.cause, made.next_step, made.code, str(made)])
