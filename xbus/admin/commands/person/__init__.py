"""``xbus person``: adds people, says what they may do, and makes tokens for their programs."""

from xbus.admin.commands.person.group import person

__all__ = ["person"]
