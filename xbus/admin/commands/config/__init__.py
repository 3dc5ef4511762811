"""``xbus config``: writes, checks and shows the configuration of the broker."""

from xbus.admin.commands.config.group import config

__all__ = ["config"]
