"""Reading the log from Spark: ``spark.read.format("xbus")`` and ``spark.readStream.format("xbus")``.

``options`` says what was asked for, ``places`` where in the log that begins and ends, ``journal`` asks the database and
cuts the log into parts, ``reading`` reads a part in an executor, and ``arrow`` makes batches of it. ``batch`` and
``stream`` have what Spark calls. It never writes, and no transaction outlives a question. The data source alone imports
it.

Face: ``batch``, ``columns``, ``options``, ``schema``, ``stream``.
"""
