"""Group commit: one thread owns the write connection and makes durable what front and back hand over.

``writer`` is the thread, its queue and the news of its commits, ``committer`` is the transaction and its repetition
after an outage, its ``Fence`` keeps brokers that were replaced from writing, and ``statements`` carries out each kind
of write. It never reads for front or back, and never answers on its own thread. ``journal.py`` alone starts the writer.
Commands that write by themselves share statements, and the bus for tests commits without a thread.

Face: ``committer``, ``statements``, ``writer``.
"""
