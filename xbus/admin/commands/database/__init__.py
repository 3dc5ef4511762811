"""``xbus database``: gives programs beside the broker no more of the journal's database than they need."""

from xbus.admin.commands.database.group import database

__all__ = ["database"]
