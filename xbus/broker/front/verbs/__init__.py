"""The verbs of the front's socket: those of wire.md, and those that our own emitters call beside them.

A verb checks who calls and hands the call on; it decides nothing. Only ``parts`` imports this package.
"""

from xbus.broker.front.groups import ThrottlingDispatch
from xbus.broker.front.verbs.batches import FrontBatchVerbs
from xbus.broker.front.verbs.emitters import FrontVerbs
from xbus.broker.front.verbs.provisioning import ProvisioningVerbs
from xbus.broker.front.verbs.refusals import RefusalNotes, Refusals, RefusalVerbs
from xbus.broker.front.verbs.repeats import RepeatBatchVerbs, RepeatVerbs

__all__ = [
    "FrontBatchVerbs",
    "FrontVerbs",
    "ProvisioningVerbs",
    "RefusalNotes",
    "RefusalVerbs",
    "Refusals",
    "RepeatBatchVerbs",
    "RepeatVerbs",
    "ThrottlingDispatch",
]
