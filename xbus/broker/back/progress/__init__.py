"""Tracks how far each role has come: cursors and delivery rows, in memory and, a moment later, in the journal.

Here a failed delivery gets its next attempt, or is parked. Nothing in this package calls a recipient.
"""
