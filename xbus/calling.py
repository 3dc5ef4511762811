"""Tells all that a call leads to, in the same task and in those that it begins, by which connection the call came."""

from contextvars import ContextVar

CALLING: ContextVar[bytes] = ContextVar("calling_connection", default=b"")
"""The id of the connection; empty for the work that nobody called for."""
