"""Reads of the log and of what belongs to it: envelopes, segments, deliveries, overlays, sessions, the catalog.

Each function is one short read that leaves no transaction open. Nothing here writes, but ``contents``, which keeps the
log's table of contents. Nothing here decides what happens to an envelope. Front, back, commands and the Spark worker
import it.

Face: ``backlog_changes``, ``bots``, ``catalog``, ``contents``, ``damage``, ``deliveries``, ``emitters``, ``envelopes``,
``event_states``, ``overlays``, ``planning``, ``reading``, ``repeats``, ``replies``, ``role_progress``, ``segments``,
``sessions`` and ``slices``.
"""
