"""Emitters as the catalog has them.

Face: ``entries``.
"""
