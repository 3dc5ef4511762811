"""Bots: the back fires their slots, and gives their runs to the programs of runners that ask.

It never runs anything itself. Rows of the journal say which runs are due, who has them and how they ended. So several
brokers, or one after a restart, need no agreement. Only ``back`` and the verbs import it.
"""

from xbus.broker.back.bots.bots import Bots

__all__ = ["Bots"]
