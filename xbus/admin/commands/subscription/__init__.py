"""``xbus subscription``: shows whom gateways call, and how that goes."""

from xbus.admin.commands.subscription.group import subscription

__all__ = ["subscription"]
