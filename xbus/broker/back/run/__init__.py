"""A run: one envelope through the graphs of its events, in two phases, to all recipients that take part.

It calls recipients and returns what came of it. It never writes to the journal and never decides about a retry.
"""
