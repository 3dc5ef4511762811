"""The recipient that runs on Spark: it takes events from the broker and has a job make each output.

``serving`` keeps it on the bus while Spark is available, ``worker`` answers the broker, ``running`` runs a job beside
the event loop, and ``job`` does the work. Small events come by a ``spool``, large ones as ranges of the journal. It
decides nothing about delivery. The program alone imports it.

Face: ``serving``.
"""
