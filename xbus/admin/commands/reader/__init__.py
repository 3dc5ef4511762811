"""``xbus reader``: shows how far readers are, and moves them."""

from xbus.admin.commands.reader.group import reader

__all__ = ["reader"]
