"""The bus at its main job, on real data: all flights that left New York in 2013.

    airport_1 ── airlines, flights ──► broker ──► airline_names ──┬──► flight_store    a table in SQLite
                                                                  └──► delay_counter   a CSV file

``python -m examples.demo`` sets a bus up, starts its programs, sends everything as one envelope, waits until it is
delivered, compares what arrived with the source, and ends: course.py tells it step by step. In the order in which it
happens:

    source.py          where the flights come from
    flights.toml       the bus: which event types there are, and who gets them
    bus.py             sets it up and starts its programs, by the commands that every user has
    sending.py         the emitter
    airline_names.py   the worker
    flight_store.py    a consumer
    delay_counter.py   another one
    check.py           compares
    report.py          tells

Beside them, program.py owns a process, running.py says how the demo ended and failure.py how it fails. The demo on
Spark, examples/demo_spark, takes the same course.
"""
