"""The journal as executors read and write it: items in, outputs back, part by part.

``reading`` makes a DataFrame of ranges of an event or an output, ``writing`` writes what a job made as parts of an
attempt. It never ends an attempt: the worker reports to the back, which does. Jobs of the worker import it.

Face: ``reading``, ``writing``.
"""
