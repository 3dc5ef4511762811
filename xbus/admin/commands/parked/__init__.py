"""``xbus parked``: lists and shows parked work, and carries out what a person decides about it."""

from xbus.admin.commands.parked.group import parked

__all__ = ["parked"]
