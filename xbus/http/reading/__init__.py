"""Reads for programs by HTTP: batches of readers, and the tail of an event type.

It calls the verbs of readers at the back by the token of the request. Leases, bounds and places are the broker's: the
gateway keeps the tails that somebody follows at this moment, and nothing that has to outlive a request. The dialects
use it; it never opens an item but to write it in another format.

Face: BackConnection, BatchRequest, CheckpointTicket, TailAnswer, Follower, HeldAnswer, TailQuestion, Tails.
"""

from xbus.http.reading.answers import HeldAnswer, TailAnswer
from xbus.http.reading.back import BackConnection
from xbus.http.reading.batches import BatchRequest, next_batch
from xbus.http.reading.followers import Follower
from xbus.http.reading.questions import program_id, seconds_of, start_after, start_of
from xbus.http.reading.tails import TailPace, TailQuestion, Tails
from xbus.http.reading.tickets import CheckpointTicket, parse_place
from xbus.http.reading.writing import BATCH_FORMATS, JSON, MSGPACK, NDJSON, batch_body

__all__ = [
    "BATCH_FORMATS",
    "JSON",
    "MSGPACK",
    "NDJSON",
    "BackConnection",
    "BatchRequest",
    "CheckpointTicket",
    "Follower",
    "HeldAnswer",
    "TailAnswer",
    "TailPace",
    "TailQuestion",
    "Tails",
    "batch_body",
    "next_batch",
    "parse_place",
    "program_id",
    "seconds_of",
    "start_after",
    "start_of",
]
