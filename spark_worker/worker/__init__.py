"""The recipient that runs on Spark: it takes events from the broker and has a job make each output."""
