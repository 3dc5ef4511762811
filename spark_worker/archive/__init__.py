"""Archives: items of settled envelopes as Parquet files, written by Spark's executors, and restored on demand.

``command`` is ``xbus archive`` and ``xbus restore``, ``archiver`` takes the steps, ``copying`` runs in executors,
``run`` keeps the place of the one command at work, and ``storage`` reaches the files. It never removes a segment before
the file that has it was read back. The program ``xbus`` finds the commands; the source reads archived items.

Face: ``command``, ``reading``.
"""
