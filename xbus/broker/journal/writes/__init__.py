"""The writes to the journal, as values; ``commit.statements`` carries each out.

A write says what to note and what its answer is. It has no SQL and no behaviour beyond its size, so front and back make
writes without knowing the database. Front, back and commands import it, and so does every package of the journal.

Face: the names below, ``bulk``, ``cursor`` and ``fingerprint``.
"""

from xbus.broker.journal.writes.bots import (
    ClaimedRun,
    ClaimRun,
    EndRun,
    FireSlots,
    LoseRuns,
    RenewRuns,
    RunFailure,
    run_key,
)
from xbus.broker.journal.writes.bulk import AppendOutput, BeginAttempt, EndAttempt, OutputPage, RenewAttempt
from xbus.broker.journal.writes.contents import ListBlock, ListedGraph
from xbus.broker.journal.writes.emission import (
    Append,
    Cancel,
    EndEvent,
    GroupType,
    Indices,
    PutEnvelope,
    PutEvent,
    PutGroup,
    Repeat,
    RepeatedEvent,
    Seal,
    Sealed,
    SealedEnvelope,
    SealedGroup,
    SealReceipt,
    StartEnvelope,
    StartEvent,
    StoredObject,
)
from xbus.broker.journal.writes.keeping import BUS_WIDE, Keeping, Keepings
from xbus.broker.journal.writes.limits import LIMIT_NAMES, NO_LIMITS, SendingLimits
from xbus.broker.journal.writes.pauses import (
    PAUSED,
    EndPauses,
    PauseEntry,
    PauseKind,
    Pauses,
    longest,
    pause_of_role,
)
from xbus.broker.journal.writes.presence import NotePresence, PresenceInstance, PresenceRow, PresenceWork
from xbus.broker.journal.writes.progress import (
    Decided,
    DeliveryMove,
    DeliveryRow,
    Failure,
    FollowOrder,
    IsolatedItem,
    ProgressUpdate,
)
from xbus.broker.journal.writes.replies import AskReply, CallOffAsks, MoveReply
from xbus.broker.journal.writes.sessions import (
    SERVED,
    EndSession,
    Introduce,
    NoteTokens,
    Register,
    RenewSessions,
    StartSession,
    StorePassword,
    Unregister,
    is_served,
    served_uri,
)
from xbus.broker.journal.writes.write import EarlierWrite, Write, WriteAnswer


def write_size(write: object) -> int:
    """Estimate the bytes of memory that a write, or an errand, takes until its commit."""
    # Those first that come most often.
    match write:
        case PutGroup():
            return 200 + 600 * len(write.envelope_ids) + write.size
        case ProgressUpdate():
            return 200
        case Append():
            return 200 + write.size
        case PutEnvelope():
            return 200 + 400 * len(write.events) + write.size + write.header_bytes
        case StartEnvelope():
            return 200 + len(write.head.headers or b"")
        case StartEvent():
            return 200 + write.tags.size
        case Repeat():
            return 200 + sum([400 + event.tags.size for event in write.events])
        case ListBlock():
            return 200 + 300 * len(write.graphs)
        case EndRun():
            return 200 + len(write.log)
    return 200


__all__ = [
    "BUS_WIDE",
    "LIMIT_NAMES",
    "NO_LIMITS",
    "PAUSED",
    "SERVED",
    "Append",
    "AppendOutput",
    "AskReply",
    "BeginAttempt",
    "CallOffAsks",
    "Cancel",
    "ClaimRun",
    "ClaimedRun",
    "Decided",
    "DeliveryMove",
    "DeliveryRow",
    "EarlierWrite",
    "EndAttempt",
    "EndEvent",
    "EndPauses",
    "EndRun",
    "EndSession",
    "Failure",
    "FireSlots",
    "FollowOrder",
    "GroupType",
    "Indices",
    "Introduce",
    "IsolatedItem",
    "Keeping",
    "Keepings",
    "ListBlock",
    "ListedGraph",
    "LoseRuns",
    "MoveReply",
    "NotePresence",
    "NoteTokens",
    "OutputPage",
    "PauseEntry",
    "PauseKind",
    "Pauses",
    "PresenceInstance",
    "PresenceRow",
    "PresenceWork",
    "ProgressUpdate",
    "PutEnvelope",
    "PutEvent",
    "PutGroup",
    "Register",
    "RenewAttempt",
    "RenewRuns",
    "RenewSessions",
    "Repeat",
    "RepeatedEvent",
    "RunFailure",
    "Seal",
    "SealReceipt",
    "Sealed",
    "SealedEnvelope",
    "SealedGroup",
    "SendingLimits",
    "StartEnvelope",
    "StartEvent",
    "StartSession",
    "StorePassword",
    "StoredObject",
    "Unregister",
    "Write",
    "WriteAnswer",
    "is_served",
    "longest",
    "pause_of_role",
    "run_key",
    "served_uri",
    "write_size",
]
