"""The transform: from flights, and the tables that came with them, to delays per airline and month."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from examples.demo_spark.tables import AIRLINES, PLANES, WEATHER, Table
from spark_worker.transform.transforms import Context


def transform(flights: DataFrame, context: Context) -> DataFrame:
    """One row for each airline and month; of many flights few rows, in the order of airline and month."""
    airlines = reference(context, AIRLINES)
    planes = reference(context, PLANES).withColumnRenamed("year", "built")
    rain = reference(context, WEATHER).where("precip > 0").select("origin", "time_hour", sf.lit(True).alias("is_wet"))
    departures = (
        flights.join(sf.broadcast(airlines), "carrier", "left")
        .join(sf.broadcast(planes), "tailnum", "left")
        .join(sf.broadcast(rain), ["origin", "time_hour"], "left")
        .withColumn("left", sf.col("dep_time").isNotNull())
        .withColumn("delay", sf.greatest(sf.col("dep_delay"), sf.lit(0)))
    )
    left, late, wet = sf.col("left"), sf.col("left") & (sf.col("delay") > 0), sf.col("left") & sf.col("is_wet")
    age = sf.col("year") - sf.col("built")
    return (
        departures.groupBy(sf.coalesce("name", "carrier").alias("airline"), "month")
        .agg(
            sf.count("*").alias("flights"),
            sf.count_if(~left).alias("cancelled"),
            sf.count_if(late).alias("late"),
            total(late, sf.col("delay")).alias("minutes"),
            total(left, sf.col("seats")).alias("seats"),
            total(left, age).alias("plane_years"),
            sf.count_if(left & age.isNotNull()).alias("aged"),
            sf.count_if(wet).alias("wet"),
            sf.count_if(wet & late).alias("wet_late"),
            total(wet, sf.col("delay")).alias("wet_minutes"),
        )
        .orderBy("airline", "month")
    )


def reference(context: Context, table: Table) -> DataFrame:
    """A table that came in the same envelope, read out of the journal; once, also where the flights come again."""

    def read() -> DataFrame:
        items = context.spark.read.format("xbus").option("eventType", table.name).load()
        own = items.where(sf.col("envelope_id") == str(context.envelope_id))
        return own.select(sf.from_json(sf.col("data").cast("string"), table.schema).alias("row")).select("row.*")

    return context.cached(f"{table.name} of {context.envelope_id}", read)


def total(condition: Column, value: Column) -> Column:
    """The sum of a value over the rows where a condition holds; 0 where it holds nowhere."""
    return sf.coalesce(sf.sum(sf.when(condition, value)), sf.lit(0))
