"""The journal's side of archives: plans, records, and the way back into the log.

Only programs that move Parquet files, and readers of archived envelopes, import this package.
"""
