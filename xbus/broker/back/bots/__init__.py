"""Bots: the back fires their slots, and gives their runs to the programs of runners that ask.

It never runs anything itself. What is due, who has it and how it ended are rows of the journal, so that several brokers
and a restart need no agreement. Only ``back`` and the verbs import it.
"""

from xbus.broker.back.bots.bots import Bots

__all__ = ["Bots"]
