"""``xbus bot``: what the bus runs by itself."""

from xbus.admin.commands.bot.group import bot

__all__ = ["bot"]
