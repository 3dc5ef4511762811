"""Runs bots: the program that asks the bus what is due, and what the author of a bot uses.

``runner`` claims runs and keeps their leases; ``child`` is the process in which a run happens, so that an author's code
can be ended and can end no runner. Only commands import it, and authors, whose functions get a ``BotBatch`` and a
``BotOutput``.
"""

from xbus.bots.job import Allowed
from xbus.bots.output import BotBatch, BotOutput
from xbus.bots.runner import BotRunner, RunnerOptions

__all__ = ["Allowed", "BotBatch", "BotOutput", "BotRunner", "RunnerOptions"]
