"""Removal of what nobody needs any more: which envelopes are still needed, and the steps of pruning."""
