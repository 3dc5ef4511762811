"""Archives: items of settled envelopes as Parquet files, written by Spark's executors, and put back when wanted."""
