"""``xbus envelope``: lists envelopes, and shows one with its events, its consumers and its items."""

from xbus.admin.commands.envelope.group import envelope

__all__ = ["envelope"]
