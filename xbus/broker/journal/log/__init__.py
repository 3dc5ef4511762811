"""Reads of the log and of what belongs to it: envelopes, segments, deliveries, overlays, sessions, the catalog.

Each function is one short read that leaves no transaction open. Nothing here writes, but ``contents``
keeps the log's table of contents.
"""
