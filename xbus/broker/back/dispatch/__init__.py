"""Brings envelopes to roles: in the log's order by lanes, and again by the rows of the retry queue.

It decides who takes part in a run, and when. It never calls a recipient itself: runs do.
"""
