"""Samples of the bus for the monitor: how much comes, how far the roles lag, and what waits for a person.

The monitor takes a sample each few seconds in one short read, and keeps it in one short transaction. Each read is
bounded, however long the log is and however much waits. Kept samples are thinned: the table has some thousand rows.

Face: ``attention``, ``outline``, ``sample`` and ``taking``.
"""
