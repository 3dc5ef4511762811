"""The journal's side of archives: plans, records, and the way back into the log.

It finds the envelopes whose items may move into files, notes the files and the runs that write them, and restores
segments that were archived. It never opens a file: the Spark worker writes and reads Parquet. The archive of the
Spark worker imports this package, and so do readers of archived envelopes. The broker runs a restore as a command.

Face: ``plans``, ``reading`` and ``records``.
"""
