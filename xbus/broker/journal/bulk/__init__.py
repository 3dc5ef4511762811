"""Reads and writes of bulk workers past the broker: outputs part by part, side files, and their removal.

Executors write the parts of an output beside the log, and read ranges of events and outputs. The back reads what was
written, takes side files over, and removes what counts for nothing. Nothing here decides whether an attempt counts:
the back does. Executors of Spark import ``segment_reader`` and ``part_writer`` alone, as each process begins with its
imports.

Face: ``cleaning``, ``outputs``, ``part_writer``, ``segment_reader`` and ``side_files``.
"""
