"""A year of flights, joined and summed up on Spark: what late departures have to do with airlines, seasons and rain.

    airport_1 ── airlines, planes, weather ──► broker ────────────────────► delay_store    tables in SQLite
              └─ flights ────────────────────► broker ──► delays (Spark) ──►

``python -m examples.demo_spark`` sets a bus up, starts its programs, sends all flights and the tables that explain them
as one envelope, waits until it is delivered, compares what arrived with a plain computation, draws it, and ends. The
broker hands the flights over as a whole: Spark reads them out of the journal and writes its result back beside them.
In the order in which it happens:

    tables.py       what is sent: the items, and their columns
    flights.toml    the bus: which event types there are, and who gets them
    delays.py       the transform, which the Spark worker runs
    delay_store.py  the consumer
    check.py        the same figures by a plain computation, and the comparison
    picture.py      draws delays per airline and month as SVG

The rest, from the download to the last line, is that of the other demo, ``examples/demo``.
"""
