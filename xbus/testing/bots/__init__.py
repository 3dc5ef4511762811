"""Runners of bots in virtual time: they claim runs of the real back, and call the author's function.

Face: ``VirtualBots``, ``BotFunction``, ``fire``. Only ``xbus.testing`` imports it.
"""

from xbus.testing.bots.firing import fire
from xbus.testing.bots.virtual_bots import GIVEN, BotFunction, VirtualBots

__all__ = ["GIVEN", "BotFunction", "VirtualBots", "fire"]
