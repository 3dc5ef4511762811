"""``xbus audit``: shows, verifies and cuts the record of who did what."""

from xbus.admin.commands.audit.group import audit

__all__ = ["audit"]
