"""Removal of what nobody needs any more: which envelopes are still needed, and the steps of pruning.

Each step is one short transaction that decides and removes at once. It never removes what a role is owed, what a person
has to decide about, or what another envelope repeats. Housekeeping says when; the archive asks which envelopes are
settled.

Face: ``needed``, ``pruning``.
"""
