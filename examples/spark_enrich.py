"""A transform for the Spark worker: flights that went somewhere, each with the name of its airline."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_worker.transform.transforms import Context


def transform(items: DataFrame, context: Context) -> DataFrame:
    airlines = context.cached("airlines", lambda: context.spark.read.csv("airlines.csv", header=True))
    return items.where("distance > 0").join(sf.broadcast(airlines), "carrier")
