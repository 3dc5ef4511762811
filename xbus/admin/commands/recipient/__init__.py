"""``xbus recipient``: runs a recipient, shows the roles, and takes them off the bus."""

from xbus.admin.commands.recipient.running import load_recipient, recipient

__all__ = ["load_recipient", "recipient"]
