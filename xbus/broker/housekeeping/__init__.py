"""Keeps the broker going for years: limits, time-outs of envelopes, and the removal of settled content."""
