"""Keeps readers in the journal: their settings, their ranges with places and leases, and their history.

The back and people decide who gets a range. Here each step is one transaction, and takes effect only if the range is as
its caller believes. Nothing here reads items.

Face: ``parked``, ``people``, ``ranges``, ``settings``, ``status``, ``steps`` and ``subscriptions``.
"""
