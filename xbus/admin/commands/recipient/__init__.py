"""``xbus recipient``: runs a recipient, shows the roles, and takes them off the bus."""

from xbus.admin.commands.recipient.loading import load_recipient
from xbus.admin.commands.recipient.running import recipient

__all__ = ["load_recipient", "recipient"]
