"""Slices of the log: items of some event types from a place on, as far as they hash into some stretches of the ring.

A slice begins and ends at any item, also in the middle of an event. Items stay the bytes that they are in the log, with
the corrections for all roles laid over them. They come from the database, or from whoever has them in memory. Nothing
here writes, waits or knows a reader.
"""
