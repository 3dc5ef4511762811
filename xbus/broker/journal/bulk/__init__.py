"""Reads and writes of bulk workers past the broker: outputs part by part, side files, and their removal.

Executors of Spark import ``segment_reader`` and ``part_writer``; the back imports the rest.
"""
