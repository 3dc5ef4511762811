"""History that an operator sends again to one consumer role: found, counted, and sent as new envelopes.

Each function takes the caller's connection and does one short read or write. The command decides how far it goes in one
transaction, and asks the person. Nothing here changes a sealed envelope: what is sent are new ones over the same
segments. Commands alone import it.

Face: the names below.
"""

from xbus.broker.journal.replay.pages import FoundEnvelope, Page, Part, count_removed, read_page
from xbus.broker.journal.replay.sending import Sent, note_replay, read_sent, send
from xbus.broker.journal.replay.target import ReplayTarget, find_target, is_rerouting, unreached_graphs
from xbus.broker.journal.replay.unreached import NoWay, Unreached, find_unreached

__all__ = [
    "FoundEnvelope",
    "NoWay",
    "Page",
    "Part",
    "ReplayTarget",
    "Sent",
    "Unreached",
    "count_removed",
    "find_target",
    "find_unreached",
    "is_rerouting",
    "note_replay",
    "read_page",
    "read_sent",
    "send",
    "unreached_graphs",
]
