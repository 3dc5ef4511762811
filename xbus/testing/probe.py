"""The probe in a recipient: it notes what the author's code took, and makes it fail or crash on demand."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from xbus.errors import ProtocolError
from xbus.recipient.author_thread import AuthorThread
from xbus.recipient.base import Recipient
from xbus.recipient.calls import Calls
from xbus.recipient.envelope import Envelope, Event
from xbus.recipient.item import Batch, Item
from xbus.rpc.codec import unpack

CrashPoint: TypeAlias = Literal["items", "before_commit", "after_commit"]
"""The next moment at which a recipient crashes: as items come, or just before or after the author's ``commit``."""


class Crash(BaseException):
    """The recipient has crashed: no code of the SDK handles this, or keeps it in a log with all that it refers to."""


@dataclass
class RoleLog:
    """Notes what happened at a role, in all lives of its recipient, and what is to happen.

    Args:
        taken: event type and value of each item that was committed, in that order.
        commits: the ids of the envelopes that were committed, in that order; one that came twice stands here twice.
        failures: what the next batches of items come to instead of the author's code.
        crash: where the recipient crashes next; None for nowhere.
        crashes: how often it did.
    """

    taken: list[tuple[str, object]] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    failures: deque[Exception] = field(default_factory=deque)
    crash: CrashPoint | None = None
    crashes: int = 0


class ProbedCalls(Calls):
    """Calls the author's methods, as ``recipient.calls.Calls`` does, with a probe.

    Args:
        recipient: the author's.
        desk: where the jobs that use this run.
        log: of the role.

    Attributes:
        has_crashed: whether this life of the recipient has ended; then the author's code is called no more.
    """

    def __init__(self, recipient: Recipient, desk: AuthorThread, log: RoleLog) -> None:
        super().__init__(recipient, desk)
        self._log = log
        self._open: dict[str, list[tuple[str, object]]] = {}
        self.has_crashed = False

    def start_event(self, event: Event) -> None:
        """Begin an event."""
        self._check_alive()
        self._open.setdefault(event.envelope.id, [])
        super().start_event(event)

    def batch(self, event: Event, batch: Batch) -> list[Item] | None:
        """Take items, unless they are to fail."""
        self._check_alive()
        self._reach("items")
        if self._log.failures:
            raise self._log.failures.popleft()
        answer = super().batch(event, batch)
        self._open[event.envelope.id] += [(event.type_name, _value(data)) for data in batch.data]
        return answer

    def end_event(self, event: Event) -> tuple[object, list[Item]]:
        """End an event."""
        self._check_alive()
        return super().end_event(event)

    def commit(self, envelope: Envelope) -> None:
        """Make it last, and note it."""
        self._check_alive()
        self._reach("before_commit")
        super().commit(envelope)
        self._log.taken += self._open.pop(envelope.id, [])
        self._log.commits.append(envelope.id)
        self._reach("after_commit")

    def rollback(self, envelope: Envelope) -> None:
        """Forget it."""
        self._check_alive()
        self._open.pop(envelope.id, None)
        super().rollback(envelope)

    def _reach(self, point: CrashPoint) -> None:
        if self._log.crash == point:
            self._log.crash = None
            self._log.crashes += 1
            self.has_crashed = True
            self._check_alive()

    def _check_alive(self) -> None:
        if self.has_crashed:
            raise Crash


def _value(data: bytes) -> object:
    """Read an item; one that is no msgpack is given as it is."""
    try:
        return unpack(data)
    except ProtocolError:
        return data


def values_of_type(taken: Sequence[tuple[str, object]], event_type: str | None) -> list[object]:
    """Choose the values of one event type, or of all."""
    return [value for name, value in taken if event_type in (None, name)]
