"""Names the connection of a call to the code that handles it, also in tasks of that code."""

from contextvars import ContextVar

CALLING: ContextVar[bytes] = ContextVar("calling_connection", default=b"")
"""The id of the connection; empty for the work that nobody called for."""
