"""The bots of a bus in memory: their functions, their runners, and what happened at them."""

import asyncio
from collections.abc import Callable
from random import Random

from xbus.broker.journal.log.catalog import Catalog
from xbus.testing.bots.functions import BotFunctions
from xbus.testing.bots.runner import VirtualRunner
from xbus.testing.broker import VirtualBroker
from xbus.testing.probe import RoleLog


class VirtualBots:
    """Starts a runner for each role that runs bots.

    Args:
        find_broker: gives the broker that runs now, or None.
        random: makes the ids of programs.

    Attributes:
        functions: call the authors' code.
    """

    def __init__(self, find_broker: Callable[[], VirtualBroker | None], random: Random) -> None:
        self._find_broker = find_broker
        self._random = random
        self._logs: dict[str, RoleLog] = {}
        self._catalog: Catalog | None = None
        self._runners: dict[int, asyncio.Task[None]] = {}
        self.functions = BotFunctions(self.log)

    def log(self, bot: str) -> RoleLog:
        """Give what happened at a bot, and what is to happen."""
        return self._logs.setdefault(bot, RoleLog())

    def know(self, catalog: Catalog) -> None:
        """Take note of the bots of a bus, and of their runners."""
        self._catalog = catalog

    @property
    def names(self) -> frozenset[str]:
        """The names of the bots."""
        return frozenset(bot.name for bot in self._catalog.bots.values()) if self._catalog is not None else frozenset()

    def start_all(self) -> None:
        """Start each runner that does not run, in a running loop."""
        runners = self._catalog.runners if self._catalog is not None and self._catalog.bots else {}
        for role_id, entry in runners.items():
            if role_id not in self._runners and not entry.is_gateway:
                runner = VirtualRunner(role_id, self.functions, self._find_broker, self._random)
                self._runners[role_id] = asyncio.get_running_loop().create_task(runner.serve(), name="runner of bots")
