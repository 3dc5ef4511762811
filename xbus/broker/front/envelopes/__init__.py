"""Envelopes as emitters use them: open ones in memory, sealed and pruned ones by way of the journal.

It checks, counts and writes; it never reads a socket. ``front.front`` is the only door to it.
"""
