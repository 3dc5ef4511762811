"""The verbs of the back's socket: those of wire.md, and those that our own recipients call beside them.

A verb checks who calls and hands the call on; it decides nothing. Only ``parts`` imports this package.
"""

from xbus.broker.back.verbs.batches import BackBatchVerbs
from xbus.broker.back.verbs.bots import BotVerbs
from xbus.broker.back.verbs.insight import InsightVerbs
from xbus.broker.back.verbs.outputs import OutputVerbs
from xbus.broker.back.verbs.readers import ReaderVerbs
from xbus.broker.back.verbs.reading import LogVerbs
from xbus.broker.back.verbs.recipients import BackVerbs
from xbus.broker.back.verbs.subscriptions import SubscriptionVerbs

__all__ = [
    "BackBatchVerbs",
    "BackVerbs",
    "BotVerbs",
    "InsightVerbs",
    "LogVerbs",
    "OutputVerbs",
    "ReaderVerbs",
    "SubscriptionVerbs",
]
