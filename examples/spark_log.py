"""The log of the bus in Spark: as a table, as a stream, and what Spark sends."""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_worker.spark.java import use_java


def largest(spark: SparkSession, config: str) -> DataFrame:
    """The largest items of what was sealed since a day."""
    log = (
        spark.read.format("xbus")
        .option("config", config)
        .option("eventType", "test_event")
        .option("from", "2026-01-01T00:00:00Z")
        .option("columns", "position, index, data")
        .load()
    )
    return log.selectExpr("position", "index", "length(data) AS bytes").orderBy("bytes", ascending=False).limit(10)


def forward(spark: SparkSession, config: str, checkpoint: str) -> StreamingQuery:
    """Send all items on as they are sealed, in capitals; those of each micro-batch as an envelope."""
    log = (
        spark.readStream.format("xbus")
        .option("config", config)
        .option("eventType", "test_event")
        .option("startingPosition", "earliest")
        .option("maxItemsPerTrigger", 100_000)
        .load()
    )
    return (
        log.selectExpr("upper(string(data)) AS data")
        .writeStream.format("xbus")
        .option("config", config)
        .option("eventType", "capitals")
        .option("login", "emitter_1")
        .option("password", "password")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


if __name__ == "__main__":
    use_java()  # before the session: the extra's Java, where the machine has none
    largest(SparkSession.Builder().master("local[*]").getOrCreate(), sys.argv[1]).show()
