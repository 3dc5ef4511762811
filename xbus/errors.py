"""Every error that the bus raises or puts on the wire.

    XbusError                      code, cause, next step
    ├── ConfigurationError         a configuration that can't be used
    ├── MissingExtra               a library is missing that an extra brings; an ImportError, too
    ├── SchemaError                the database holds no schema, or another one
    ├── JournalError               the journal could not do what was asked
    │   ├── JournalUnavailable     ... now; the same may go well later
    │   │   └── JournalRefused     ... until a person mends its address, its login or its file
    │   ├── EnvelopeCancelled      ... as somebody cancelled the envelope meanwhile
    │   ├── EnvelopeIdTaken        ... as there is an envelope of that id
    │   ├── EventIdTaken           ... as another envelope has an event of that id
    │   └── Fenced                 this broker may write no more, and ends
    │       ├── TakenOver          ... as another broker writes to the journal
    │       └── WentBack           ... as the journal lacks commits of this broker
    ├── ProtocolError              frames that are not the protocol
    └── CallError                  an answer to a call: travels on the wire by its code
        ├── Refused                the call is wrong or not allowed; repeating it does not help
        └── Failed                 the call could not be done now; repeating it may help
            ├── TimedOut           no answer came within the time-out
            └── ConnectionLost     the other side went away while the answer was awaited

Each error says three things to the person who reads it: a ``code`` to look up or to branch on, the ``cause`` in one
sentence, and the ``next_step`` to take.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from xbus.texts import plain


class XbusError(Exception):
    """The root of the tree.

    Args:
        cause: what went wrong, one sentence without a final full stop.
        next_step: what the reader should do about it; may be empty where nothing can be done.
        code: a stable name in snake case; the class's own default where none is given.
    """

    default_code: ClassVar[str] = "xbus_error"

    # Of an author's class that does not call this ``__init__``.
    code: str = "xbus_error"
    cause: str = "an error without a cause"
    next_step: str = ""

    def __init__(self, cause: str, next_step: str = "", *, code: str = "") -> None:
        # Authors of programs raise these errors, too, with whatever their libraries said.
        self.cause = plain(cause)
        super().__init__(self.cause)
        self.code = plain(code) or self.default_code
        self.next_step = plain(next_step)
        # A traceback shows it in a line of its own, also one that Spark hands on as text.
        self.add_note(f"[{self.code}]")

    def __str__(self) -> str:
        return f"{self.cause}: {self.next_step}" if self.next_step else self.cause


class ConfigurationError(XbusError):
    """A configuration that can't be used; ``cause`` names file or section, key and value."""

    default_code = "bad_configuration"


class MissingExtra(XbusError, ImportError):
    """A library is missing, or too old, that an extra of the bus brings."""

    default_code = "extra_missing"


class SchemaError(XbusError):
    """The database has no schema, or an older or newer one than this program needs."""

    default_code = "bad_schema"


class JournalError(XbusError):
    """The journal could not do what was asked, and would not do it on a second try either."""

    default_code = "journal_error"


class JournalUnavailable(JournalError):
    """The database can't be reached or written now; nothing of the call was kept."""

    default_code = "journal_unavailable"


class JournalRefused(JournalUnavailable):
    """The database refuses the connection until a person mends its address, its login or its file.

    A program ends by it at its start. One that runs already repeats its work, as for any outage.
    """


class EnvelopeCancelled(JournalError):
    """Somebody else cancelled the envelope meanwhile, for the reason ``cause``; nothing of the call was kept."""

    default_code = "envelope_closed"


class EnvelopeIdTaken(JournalError):
    """The journal has an envelope of the id that an emitter chose; nothing of the call was kept."""

    default_code = "envelope_id_taken"


class EventIdTaken(JournalError):
    """Another envelope has an event of the id that an emitter chose; nothing of the call was kept."""

    default_code = "event_id_taken"


class Fenced(JournalError):
    """This broker may write no more to its journal: it must end."""

    default_code = "journal_fenced"


class TakenOver(Fenced):
    """Another broker writes to the journal; this one must stay down."""

    default_code = "journal_taken_over"


class LeaseLost(TakenOver):
    """Another broker may lead by now, as the lease could not be renewed."""


class WentBack(Fenced):
    """The journal lacks commits of this broker, as after a fail-over; a broker that starts anew reads what it has.

    Args:
        commits: the number of commits that are missing; 0 if only the log is shorter than the broker has read.
        known: the position up to which this broker knew the log.
        found: the position where the log ends now.
    """

    default_code = "journal_went_back"

    def __init__(self, commits: int, known: int, found: int) -> None:
        lost = f"{commits:,} commits" if commits else f"{known - found:,} envelopes"
        super().__init__(
            f"the journal went back by {lost}; its log reached {known:,}, and ends at {found:,} now",
            "start the broker again: it goes on with what the journal has; xbus journal losses tells what to do",
        )
        self.commits = commits
        self.known = known
        self.found = found


class ProtocolError(XbusError):
    """Frames or values that are not the protocol of ``docs/wire.md``."""

    default_code = "bad_frame"


class CallError(XbusError):
    """An answer to a call that is not the wished one; it travels on the wire by its code.

    Args:
        details: what a program may read, by name; ``docs/wire.md`` lists it by code.
    """

    default_code = "call_error"
    details: Mapping[str, float] = MappingProxyType({})

    def __init__(
        self, cause: str, next_step: str = "", *, code: str = "", details: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(cause, next_step, code=code)
        self.details = details or {}


class Refused(CallError):
    """The call is wrong or not allowed: the same call again gets the same answer."""

    default_code = "refused"


class Failed(CallError):
    """The call could not be done now: the same call may go well later."""

    default_code = "failed"


class TimedOut(Failed):
    """No answer came within the time-out; whether the call was carried out is not known."""

    default_code = "timed_out"


class ConnectionLost(Failed):
    """The other side went away while the answer was awaited; whether the call was carried out is not known."""

    default_code = "connection_lost"
