"""Reading the log from Spark: ``spark.read.format("xbus")`` and ``spark.readStream.format("xbus")``.

``options`` says what was asked for, ``places`` where in the log that begins and ends, ``planning`` cuts it into parts,
``journal`` asks the database, ``reading`` reads a part in an executor, and ``columns`` makes Arrow batches of it.
``batch`` and ``stream`` are what Spark calls.
"""
