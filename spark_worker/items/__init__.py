"""Items as columns and back: formats, rows of JSON and msgpack, Arrow batches, and errors that name the item.

It turns the bytes of items into rows of the declared schema, and rows into bytes. A faulty item never ends a job here:
it gets a text in ``_corrupt``. It knows nothing of the journal and of envelopes; every other package of the Spark
worker imports it.

Face: ``batches``, ``columns``, ``errors``, ``failures``, ``formats``, ``headers``, ``pieces``, ``source``.
"""
