"""Removal of what nobody needs any more: which envelopes are needed, which rules keep them, and the steps of pruning.

Each step is one short transaction that decides and removes at once. It never removes what a role is owed, what a person
has to decide about, or what another envelope repeats. It also finds roles and readers
that lag too far. Housekeeping says when; the archive asks which envelopes are settled.

Face: ``holders``, ``lagging``, ``needed``, ``pruning``, ``reader_lags`` and ``rules``.
"""
