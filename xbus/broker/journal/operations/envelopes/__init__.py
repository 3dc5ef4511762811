"""Envelopes for operators: shown, listed, searched for, and named by the beginnings of their ids.

Every answer is bounded, however much the journal holds. Nothing here changes an envelope.
"""
