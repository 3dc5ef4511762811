"""Jobs of the Spark worker: an event is read from the journal, transformed and written back, on a real session."""

import json
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgpack  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_worker.items.failures import of_job
from spark_worker.items.formats import make_format
from spark_worker.transform.pipeline import Pipeline
from spark_worker.transform.transforms import Context, SqlTransform, Transform
from spark_worker.worker.job import ItemPlace, SparkJobs
from spark_worker.worker.spool import Spool
from tests.support.bulk import Put, begin_attempt, put_event, read_all
from tests.support.journal import change_segments, looking
from xbus import model
from xbus.broker.journal.bulk.outputs import read_totals
from xbus.broker.journal.bulk.part_writer import Adoption
from xbus.errors import ConfigurationError, JournalError, XbusError
from xbus.recipient import Batch, Refusal
from xbus.recipient.bulk import Handover, Made

SCHEMA = "id INT NOT NULL, name STRING, price DOUBLE"

NESTED = b'{"a":{"b":1},"m":{"x":2}}'

MakeJobs: TypeAlias = Callable[..., SparkJobs]


def item(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}", "price": number / 2, **more}).encode()


def same(items: DataFrame, context: Context) -> DataFrame:
    return items


@pytest.fixture
def make_jobs(spark: SparkSession, tmp_path: Path) -> MakeJobs:
    def make(
        url: str,
        transform: Transform = same,
        name: str = "json",
        schema: str = SCHEMA,
        limit: int = 1 << 24,
        **more: Any,
    ) -> SparkJobs:
        pipeline = Pipeline(make_format(name, schema), transform, **more)
        return SparkJobs(spark, pipeline, ItemPlace(url, tmp_path, limit), {"key": "value"})

    return make


def handover(put: Put, attempt_id: uuid.UUID | None = None) -> Handover:
    ids = put.envelope_id, put.event_id, "flights", attempt_id or put.attempt_id
    return Handover(*ids, "names", put.event_id, False, put.items)


def finished(url: str, put: Put, made: Made) -> list[tuple[int, bytes]]:
    """What the broker does when it is told; and all items of the output."""
    adopt(url, put.attempt_id)
    with looking(url) as connection:
        totals = read_totals(connection, put.attempt_id)
        assert (totals.items, totals.data_bytes, totals.hash) == (made.items, made.data_bytes, made.hash)
    return read_all(url, put.attempt_id)


def adopt(url: str, attempt_id: uuid.UUID) -> None:
    adoption = Adoption(attempt_id)
    more = True
    while more:
        with looking(url) as connection:
            more = adoption.step(connection)


def values(output: Iterable[tuple[int, bytes]]) -> list[Any]:
    return [json.loads(data) for _, data in output]


def test_an_event_is_read_transformed_and_written_back(database_url: str, make_jobs: MakeJobs) -> None:
    def dear(items: DataFrame, context: Context) -> DataFrame:
        return items.where("price >= 100").withColumn("double", sf.col("price") * 2)

    put = put_event(database_url, map(item, range(1000)))

    made = make_jobs(database_url, dear).make(handover(put))

    output = finished(database_url, put, made)
    assert [index for index, _ in output] == list(range(200, 1000))
    assert values(output)[0] == {"id": 200, "name": "n200", "price": 100.0, "double": 200.0}


def test_a_transform_knows_the_headers_both_ways(sqlite_url: str, make_jobs: MakeJobs, tmp_path: Path) -> None:
    def marked(items: DataFrame, context: Context) -> DataFrame:
        return items.withColumn("name", sf.lit(f"{context.headers['shard']} of {context.partition_key}"))

    put = put_event(sqlite_url, [item(1)])
    jobs, headers = make_jobs(sqlite_url, marked), {"shard": 7}

    made = jobs.make(replace(handover(put), headers=headers, partition_key="client 7"))
    spool = spooled(tmp_path, Batch([item(1)], 0))
    table = jobs.answer(spool, put.envelope_id, put.event_id, "flights", headers, "client 7")

    wanted = [{"id": 1, "name": "7 of client 7", "price": 0.5}]
    assert values(finished(sqlite_url, put, made)) == wanted
    assert [json.loads(data) for data in table["data"].to_pylist()] == wanted


def test_what_is_left_of_an_event_does_not_pass_for_the_whole(sqlite_url: str, make_jobs: MakeJobs) -> None:
    put = put_event(sqlite_url, map(item, range(10)))

    with pytest.raises(JournalError, match="has 10 items where 11 were"):
        make_jobs(sqlite_url).make(replace(handover(put), items=11))


def test_rows_that_were_moved_are_brought_back_into_order(sqlite_url: str, make_jobs: MakeJobs) -> None:
    def moved(items: DataFrame, context: Context) -> DataFrame:
        return items.repartition(3, sf.hash("name"))

    put = put_event(sqlite_url, map(item, range(500)))

    output = finished(sqlite_url, put, make_jobs(sqlite_url, moved).make(handover(put)))

    assert [index for index, _ in output] == list(range(500))
    assert [value["id"] for value in values(output)] == list(range(500))


def test_many_items_make_one(sqlite_url: str, make_jobs: MakeJobs) -> None:
    def sums(items: DataFrame, context: Context) -> DataFrame:
        return items.groupBy((sf.col("id") % 7).alias("rest")).agg(
            sf.count("*").alias("number"), sf.sum("id").alias("sum")
        )

    put = put_event(sqlite_url, map(item, range(700)))

    output = finished(sqlite_url, put, make_jobs(sqlite_url, sums, order_by="rest").make(handover(put)))

    assert {index for index, _ in output} == {-1}
    assert [value["rest"] for value in values(output)] == list(range(7))
    assert values(output)[3] == {"rest": 3, "number": 100, "sum": sum(range(3, 700, 7))}


def test_one_item_makes_many(sqlite_url: str, make_jobs: MakeJobs) -> None:
    def copies(items: DataFrame, context: Context) -> DataFrame:
        return items.withColumn("copy", sf.explode(sf.expr("sequence(1, id % 3)"))).where("copy > 0")

    put = put_event(sqlite_url, map(item, range(1, 10)), per_segment=4)

    output = finished(sqlite_url, put, make_jobs(sqlite_url, copies).make(handover(put)))

    assert [index for index, _ in output] == sorted(index for index, _ in output)
    assert [(value["id"], value["copy"]) for value in values(output)][:4] == [(1, 1), (2, 1), (2, 2), (3, 1)]


def test_ids_options_and_references_are_there(sqlite_url: str, make_jobs: MakeJobs) -> None:
    loaded = []

    def load(spark: SparkSession) -> DataFrame:
        loaded.append(1)
        return spark.createDataFrame([(number, f"even {number}") for number in range(0, 10, 2)], "id INT, label STRING")

    def with_labels(items: DataFrame, context: Context) -> DataFrame:
        labels = context.cached("labels", lambda: load(context.spark))
        return items.join(labels, "id").select(
            *("_index", "id", "label"),
            sf.col("_event_id").alias("event"),
            sf.col("_envelope_id").alias("envelope"),
            sf.lit(f"{context.type_name} {context.options['key']}").alias("said"),
        )

    first, second = put_event(sqlite_url, map(item, range(10))), put_event(sqlite_url, map(item, range(4)))
    jobs = make_jobs(sqlite_url, with_labels)

    output = finished(sqlite_url, first, jobs.make(handover(first)))
    finished(sqlite_url, second, jobs.make(handover(second)))

    ids = {"event": str(first.event_id), "envelope": str(first.envelope_id), "said": "flights value"}
    assert values(output)[1] == {"id": 2, "label": "even 2", **ids}
    assert [index for index, _ in output] == [0, 2, 4, 6, 8]
    assert loaded == [1]


def test_sql_over_the_view_items(sqlite_url: str, make_jobs: MakeJobs) -> None:
    sql = SqlTransform(
        "CREATE OR REPLACE TEMPORARY VIEW factors AS SELECT 3 AS factor",
        "SELECT _index, id, id * factor AS times FROM items CROSS JOIN factors WHERE id > 5",
    )
    put = put_event(sqlite_url, map(item, range(8)))

    output = finished(sqlite_url, put, make_jobs(sqlite_url, sql).make(handover(put)))

    assert values(output) == [{"id": 6, "times": 18}, {"id": 7, "times": 21}]


def test_an_output_can_be_what_comes_in(database_url: str, make_jobs: MakeJobs) -> None:
    put = put_event(database_url, map(item, range(300)))
    jobs = make_jobs(database_url, lambda items, context: items.where("id % 2 = 0"))
    finished(database_url, put, jobs.make(handover(put)))
    with looking(database_url) as connection:
        connection.execute(sa.update(model.bulk_attempt).values(state="ready"))
    below = uuid.uuid4()
    begin_attempt(database_url, put.event_id, below, node="store")

    given = Handover(put.envelope_id, put.event_id, "flights", below, "store", put.attempt_id, True, 150)
    jobs.make(given)
    adopt(database_url, below)

    output = read_all(database_url, below)
    assert [index for index, _ in output] == list(range(0, 300, 2))


def test_items_that_do_not_fit_are_named_with_their_cause(sqlite_url: str, make_jobs: MakeJobs) -> None:
    items = [item(0), b"no json", item(2, price="dear"), b'{"name": "x"}', item(4)]
    put = put_event(sqlite_url, items, per_segment=2)

    with pytest.raises(Refusal) as raised:
        make_jobs(sqlite_url).make(handover(put))

    assert raised.value.cause == "3 of the items do not fit the schema"
    assert [indices for indices, _ in raised.value.errors] == [[1], [2], [3]]
    assert raised.value.errors[1][1] == 'field price: "dear" is not a double'
    assert raised.value.errors[2][1] == "field id is missing"


def test_items_that_do_not_fit_for_one_cause_are_told_together(sqlite_url: str, make_jobs: MakeJobs) -> None:
    put = put_event(sqlite_url, [item(0), *[b"no json"] * 50])

    error = failed(make_jobs(sqlite_url, most_named=40), put)

    assert isinstance(error, Refusal)
    assert error.code == "refused"
    ((indices, cause),) = error.errors
    assert indices == list(range(1, 41))
    assert cause.startswith("the item is not JSON")
    assert cause.endswith("(50 of the items do not fit the schema, the first 40 are named)")


def test_a_transform_may_take_items_that_do_not_fit(sqlite_url: str, make_jobs: MakeJobs) -> None:
    def told(items: DataFrame, context: Context) -> DataFrame:
        return items.select("_index", "id", sf.col("_corrupt").alias("text"))

    put = put_event(sqlite_url, [item(0), b"no json"])

    output = finished(sqlite_url, put, make_jobs(sqlite_url, told, keep_corrupt=True).make(handover(put)))

    assert values(output) == [{"id": 0, "text": None}, {"id": None, "text": "no json"}]


@pytest.mark.parametrize(
    "transform",
    [lambda items, context: context.spark.range(2), lambda items, context: items.where("false").select("id")],
)
def test_a_transform_need_not_look_at_its_items(sqlite_url: str, make_jobs: MakeJobs, transform: Transform) -> None:
    jobs = make_jobs(sqlite_url, transform)
    well, ill = put_event(sqlite_url, [item(0), item(1)]), put_event(sqlite_url, [item(0), b"no json"])

    assert values(finished(sqlite_url, well, jobs.make(handover(well)))) in ([], [{"id": 0}, {"id": 1}])
    with pytest.raises(Refusal, match="1 of the items"):
        jobs.make(handover(ill))


def peeking(items: DataFrame, context: Context) -> DataFrame:
    assert items.take(1)
    return items


def by_way_of_an_rdd(items: DataFrame, context: Context) -> DataFrame:
    return context.spark.createDataFrame(items.rdd, items.schema)


def checkpointed(items: DataFrame, context: Context) -> DataFrame:
    return items.localCheckpoint()


def summed_up(items: DataFrame, context: Context) -> DataFrame:
    """Spark's observations are not told of what reads an RDD, and what is returned does not show that it was read."""
    total = items.rdd.map(lambda row: row.id).sum()
    return context.spark.range(1).select(sf.lit(total).alias("total"))


@pytest.mark.parametrize("transform", [peeking, by_way_of_an_rdd, checkpointed, summed_up])
def test_items_that_do_not_fit_are_named_whatever_the_transform_reads_by_itself(
    sqlite_url: str, make_jobs: MakeJobs, transform: Transform
) -> None:
    """Spark counts once: what is counted first may be a few items, and not the last ones."""
    put = put_event(sqlite_url, [*map(item, range(40)), b"no json"], per_segment=10)

    with pytest.raises(Refusal, match="1 of the items do not fit the schema") as raised:
        make_jobs(sqlite_url, transform).make(handover(put))

    assert [indices for indices, _ in raised.value.errors] == [[40]]


def none_of_a_name(items: DataFrame, context: Context) -> DataFrame:
    return items.where("price > 1e9").dropDuplicates(["name"])


def test_a_transform_that_moves_its_items_may_leave_none(sqlite_url: str, make_jobs: MakeJobs) -> None:
    """Spark sees on its way that nothing is left, and drops steps of its plan."""
    jobs = make_jobs(sqlite_url, none_of_a_name)
    well, ill = put_event(sqlite_url, map(item, range(40))), put_event(sqlite_url, [item(0), b"no json"])

    assert jobs.make(handover(well)).items == 0
    with pytest.raises(Refusal, match="1 of the items"):
        jobs.make(handover(ill))


def failed(jobs: SparkJobs, put: Put) -> XbusError:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        jobs.make(handover(put))
    return of_job(raised.value)


def counted(items: DataFrame, context: Context) -> DataFrame:
    """Have Spark read the items while the transform is still at work."""
    return items.where(sf.lit(items.count()) > 0)


@pytest.mark.parametrize("transform", [same, counted])
def test_damaged_items_are_refused_by_their_code(sqlite_url: str, make_jobs: MakeJobs, transform: Transform) -> None:
    put = put_event(sqlite_url, [item(0)])
    with looking(sqlite_url) as connection:
        assert change_segments(connection, [put.event_id], data=b"\xc4\x01x") == 1

    error = failed(make_jobs(sqlite_url, transform), put)

    assert isinstance(error, Refusal)
    assert (error.code, error.errors) == ("segment_damaged", [([], error.cause)])
    assert error.cause.startswith("stored items are damaged: ")


def raising(items: DataFrame, context: Context) -> DataFrame:
    raise KeyError("airline")


def exiting(items: DataFrame, context: Context) -> DataFrame:
    sys.exit("no airline")


def raising_in_a_task(items: DataFrame, context: Context) -> DataFrame:
    def unlucky(number: int) -> int:
        if number == 3:
            raise ValueError("three is unlucky")
        return number

    return items.withColumn("id", sf.udf(unlucky, "int", useArrow=False)("id"))


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (raising, "KeyError: 'airline'"),
        (exiting, "SystemExit: no airline"),
        (raising_in_a_task, "ValueError: three is unlucky"),
        (lambda items, context: items.select("amout"), "amout"),
        (lambda items, context: None, "NoneType, not a DataFrame"),
        (lambda items, context: items.select("_index"), "keeps no column"),
        (lambda items, context: items.withColumn("id", sf.raise_error(sf.lit("not today"))), "not today"),
        (lambda items, context: items.withColumn("id", sf.expr("id div (id - 3)")), "DIVIDE_BY_ZERO"),
        (lambda items, context: items.withColumn("_index", sf.lit("x")), "made _index a string"),
    ],
)
def test_a_transform_that_can_not_work_is_refused(
    sqlite_url: str, make_jobs: MakeJobs, transform: Transform, said: str
) -> None:
    put = put_event(sqlite_url, map(item, range(6)))

    error = failed(make_jobs(sqlite_url, transform), put)

    assert isinstance(error, Refusal)
    assert said in error.cause
    assert "\n" not in error.cause


def test_an_output_that_can_not_be_encoded_is_refused(sqlite_url: str, make_jobs: MakeJobs) -> None:
    put = put_event(sqlite_url, map(item, range(6)))
    null = make_jobs(sqlite_url, lambda items, _: items.withColumn("data", sf.lit(None)), name="bytes", schema="")
    numbers = make_jobs(sqlite_url, lambda items, _: items.withColumn("data", sf.lit(3)), name="bytes", schema="")

    for jobs, said in [
        (make_jobs(sqlite_url, limit=10), "more than the 10 of [front] max_item_bytes"),
        (null, "need a column named data"),
        (numbers, "need a column named data"),
    ]:
        error = failed(jobs, put)
        assert isinstance(error, Refusal)
        assert said in error.cause


def test_a_database_that_is_away_is_transient(make_jobs: MakeJobs, sqlite_url: str, tmp_path: Path) -> None:
    put = put_event(sqlite_url, map(item, range(6)))
    elsewhere = f"sqlite:///{tmp_path}/nowhere/xbus.db"

    error = failed(make_jobs(elsewhere), put)

    assert not isinstance(error, Refusal)


def test_an_attempt_that_is_over_takes_nothing(database_url: str, make_jobs: MakeJobs) -> None:
    put = put_event(database_url, map(item, range(6)))
    with looking(database_url) as connection:
        connection.execute(sa.update(model.bulk_attempt).values(state="abandoned"))

    error = failed(make_jobs(database_url), put)

    assert not isinstance(error, Refusal)
    assert read_all(database_url, put.attempt_id) == []


@pytest.mark.parametrize(
    ("name", "schema", "items", "expected"),
    [
        (
            "msgpack",
            "id INT, when TIMESTAMP, tags ARRAY<STRING>",
            [msgpack.packb({"id": n, "tags": ["a", None]}) for n in range(3)],
            [msgpack.packb({"id": n, "when": None, "tags": ["a", None]}) for n in range(3)],
        ),
        (
            "msgpack",
            "a STRUCT<day: DATE>, m MAP<STRING, DECIMAL(5, 2)>",
            [msgpack.packb({"a": {"day": "2026-01-31"}, "m": {"x": "1.50"}})],
            [msgpack.packb({"a": {"day": "2026-01-31"}, "m": {"x": "1.50"}})],
        ),
        ("csv", "id INT, name STRING, day DATE", [b'1,"a,b",2026-01-31', b"2,,"], [b'1,"a,b",2026-01-31', b"2,,"]),
        ("bytes", "", [b"\x00\xff", b"", b"a" * 300], [b"\x00\xff", b"", b"a" * 300]),
        (
            "json",
            "a STRUCT<b: INT>, m MAP<STRING, INT>",
            [b'{"a":{"b":1},"m":{"x":2}}'],
            [b'{"a":{"b":1},"m":{"x":2}}'],
        ),
    ],
)
def test_formats_there_and_back(
    sqlite_url: str, make_jobs: MakeJobs, name: str, schema: str, items: list[bytes], expected: list[bytes]
) -> None:
    put = put_event(sqlite_url, items)

    output = finished(sqlite_url, put, make_jobs(sqlite_url, name=name, schema=schema).make(handover(put)))

    assert [data for _, data in output] == expected


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        ("msgpack", msgpack.packb({"id": "x"}), 'field id: "x" is not an int'),
        ("msgpack", msgpack.packb([1]), "it is a list of msgpack, not a map"),
        ("msgpack", b"\xc1", "it is not msgpack"),
        ("msgpack", msgpack.packb({}), "field id is missing"),
        ("csv", b"x", "does not fit the schema"),
        ("json", b'{"id": 1.5}', "field id: 1.5 is not an int"),
        ("json", b"", "the item is not JSON"),
    ],
)
def test_what_does_not_fit_is_told_in_every_format(
    sqlite_url: str, make_jobs: MakeJobs, name: str, bad: bytes, said: str
) -> None:
    good = {"msgpack": msgpack.packb({"id": 1}), "csv": b"1", "json": b'{"id": 1}'}[name]
    put = put_event(sqlite_url, [good, bad, good])

    with pytest.raises(Refusal) as raised:
        make_jobs(sqlite_url, name=name, schema="id INT NOT NULL").make(handover(put))

    ((indices, cause),) = raised.value.errors
    assert indices == [1]
    assert said in cause


@pytest.mark.parametrize(
    ("name", "schema", "said"),
    [
        ("json", "", "need a schema"),
        ("json", "id INTT", "not a list of columns"),
        ("json", "_index INT", "names _index"),
        ("json", "id INT, name STRING, ID INT", "names id twice"),
        ("bytes", "id INT", "have no columns"),
    ],
)
def test_a_schema_that_is_none_is_told_at_the_start(spark: SparkSession, name: str, schema: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_format(name, schema)


def beyond(items: DataFrame, context: Context) -> DataFrame:
    return items.withColumn("_index", sf.col("_index") + 1000)


def before(items: DataFrame, context: Context) -> DataFrame:
    return items.withColumn("_index", sf.col("_index") - 1).repartition(2)


def spooled(folder: Path, *batches: Batch) -> Spool:
    spool = Spool(folder / "a.spool")
    for batch in batches:
        spool.add(batch)
    spool.finish()
    return spool


@pytest.mark.parametrize(("transform", "said"), [(beyond, "_index 10"), (before, "_index -1")])
def test_a_place_that_the_event_does_not_have_is_refused_both_ways(
    sqlite_url: str, make_jobs: MakeJobs, tmp_path: Path, transform: Transform, said: str
) -> None:
    items = [item(number) for number in range(60)]
    put = put_event(sqlite_url, items)
    jobs = make_jobs(sqlite_url, transform)

    large = failed(jobs, put)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        jobs.answer(spooled(tmp_path, Batch(items, 0)), put.envelope_id, put.event_id, "flights")
    small = of_job(raised.value)

    for error in (large, small):
        assert isinstance(error, Refusal)
        assert said in error.cause
        assert "items 0 to 59: keep _index as it came, or set it to null" in error.cause


def at_the_last_place(items: DataFrame, context: Context) -> DataFrame:
    return items.withColumn("_index", sf.lit(59))


@pytest.mark.parametrize(("transform", "moved"), [(at_the_last_place, None), (beyond, "_index 10")])
def test_below_another_worker_the_places_are_those_of_the_event(
    sqlite_url: str, make_jobs: MakeJobs, tmp_path: Path, transform: Transform, moved: str | None
) -> None:
    """The one above leaves the last items out: what is made below may say that it was made of them."""
    items = [item(number) for number in range(60)]
    put = put_event(sqlite_url, items)
    finished(sqlite_url, put, make_jobs(sqlite_url, lambda items, _: items.where("id < 40")).make(handover(put)))
    with looking(sqlite_url) as connection:
        connection.execute(sa.update(model.bulk_attempt).values(state="ready"))
    below = uuid.uuid4()
    begin_attempt(sqlite_url, put.event_id, below, node="store")
    given = Handover(put.envelope_id, put.event_id, "flights", below, "store", put.attempt_id, True, 40)
    jobs = make_jobs(sqlite_url, transform)
    ordinary = spooled(tmp_path, Batch(items[:40], 0))

    large = outcome(lambda: jobs.make(given).items)
    small = outcome(lambda: len(jobs.answer(ordinary, put.envelope_id, put.event_id, "flights")))

    for came in (large, small):
        if moved is None:
            assert came == 40
        else:
            assert isinstance(came, Refusal)
            assert moved in came.cause
            assert "items 0 to 59" in came.cause


def outcome(work: Callable[[], int]) -> int | XbusError:
    """How many items were made, or what is told of the failure."""
    try:
        return work()
    except Exception as error:  # whatever Spark raises
        return of_job(error)


def test_a_place_behind_items_that_are_left_out_is_one_of_the_event(
    sqlite_url: str, make_jobs: MakeJobs, tmp_path: Path
) -> None:
    spool = spooled(tmp_path, Batch([item(1), item(3)], 0, [[1], [3]]))

    table = make_jobs(sqlite_url).answer(spool, uuid.uuid4(), uuid.uuid4(), "flights")

    assert table["_index"].to_pylist() == [1, 3]


def numbered(items: DataFrame, context: Context) -> DataFrame:
    return items.agg(sf.count("*").alias("n"))


def without_repeats(items: DataFrame, context: Context) -> DataFrame:
    return items.dropDuplicates(["name"])


@pytest.mark.parametrize(
    ("transform", "made"), [(same, []), (numbered, [b'{"n":0}']), (without_repeats, [])], ids=["same", "n", "repeats"]
)
def test_of_no_items_it_makes_the_same_both_ways(
    sqlite_url: str, make_jobs: MakeJobs, tmp_path: Path, transform: Transform, made: list[bytes]
) -> None:
    put = put_event(sqlite_url, [])
    jobs = make_jobs(sqlite_url, transform)
    spool = Spool(tmp_path / "a.spool")
    spool.finish()

    assert jobs.answer(spool, put.envelope_id, put.event_id, "flights")["data"].to_pylist() == made
    assert [data for _, data in finished(sqlite_url, put, jobs.make(handover(put)))] == made


def dear_and_moved(items: DataFrame, context: Context) -> DataFrame:
    return items.where("price > 3").repartition(2, "name")


@pytest.mark.parametrize("transform", [same, dear_and_moved])
@pytest.mark.parametrize("inline", [False, True])
def test_the_ordinary_path_comes_to_the_same(
    sqlite_url: str,
    make_jobs: MakeJobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transform: Transform,
    inline: bool,
) -> None:
    items = [item(number) for number in range(40)]
    put = put_event(sqlite_url, items)
    jobs = make_jobs(sqlite_url, transform)
    if inline:
        monkeypatch.setattr("spark_worker.worker.job.is_local", lambda master: False)
    spool = Spool(tmp_path / "a.spool")
    for start in range(0, 40, 8):
        spool.add(Batch(items[start : start + 8], start))
    spool.finish()

    table = jobs.answer(spool, put.envelope_id, put.event_id, "flights")

    output = finished(sqlite_url, put, jobs.make(handover(put)))
    assert list(zip(table["_index"].to_pylist(), table["data"].to_pylist(), strict=True)) == output
