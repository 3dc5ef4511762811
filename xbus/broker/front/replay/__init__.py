"""Envelopes that emitters ask for again: repeated over the stored items, and brought back from the archive."""
