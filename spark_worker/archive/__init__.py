"""Archives: items of settled envelopes as Parquet files, written by Spark's executors, and restored on demand."""
