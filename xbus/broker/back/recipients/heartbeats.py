"""The heartbeats of a recipient: that it lives, how far it is with its work, and whether it takes more."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

MOST_ENVELOPES = 1000
"""So many envelopes and outputs of one heartbeat are looked at: more than a recipient has open."""


@dataclass(frozen=True, slots=True)
class Work:
    """The progress that a recipient reports for an envelope.

    Args:
        progress: grows while the work advances.
        since: when the broker first heard of this progress, on the loop's clock.
        done: the work done, in the recipient's unit; None if it reports none.
        of: the whole work, in the same unit; None if it reports none.
    """

    progress: int
    since: float
    done: int | None
    of: int | None


class Heartbeats:
    """The heartbeats of one recipient.

    Args:
        now: the loop's clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._work: dict[UUID, Work] = {}
        self.heard_at: float | None = None
        """When the last one came; None before the first."""

    def heartbeat(self, told: object) -> None:
        """Take note of a heartbeat.

        Args:
            told: the recipient's report about its work. Unreadable parts are passed over: the recipient lives all the
                same.
        """
        self.heard_at = self._now()
        works = [self._read(entry) for entry in told[:MOST_ENVELOPES]] if isinstance(told, list) else []
        self._work = dict(work for work in works if work is not None)

    def _read(self, entry: Any) -> tuple[UUID, Work] | None:
        match entry:
            case {"envelope_id": str(text), "progress": int(progress)} | {
                "attempt_id": str(text),
                "progress": int(progress),
            }:
                try:
                    envelope_id = UUID(text)
                except ValueError:
                    return None
                known = self._work.get(envelope_id)
                since = self._now() if known is None or progress != known.progress else known.since
                return envelope_id, Work(progress, since, _amount(entry.get("done")), _amount(entry.get("of")))
        return None

    def renewed(self, ids: Iterable[bytes]) -> float | None:
        """Give the moment of the last progress with any of some envelopes, on the loop's clock; None without any.

        Args:
            ids: theirs, of 16 bytes.
        """
        works = (self._work.get(UUID(bytes=each)) for each in ids)
        return max((work.since for work in works if work is not None), default=None)

    def work(self, envelope_id: UUID) -> Work | None:
        """Give the latest report about an envelope, or about an attempt to make an output."""
        return self._work.get(envelope_id)


def _amount(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


class Readiness:
    """The readiness of one worker.

    Args:
        is_told: whether the worker says itself when it takes another event; otherwise it always does.
    """

    def __init__(self, *, is_told: bool) -> None:
        self._is_told = is_told
        self._at_work = False
        self._last_worked_on: UUID | None = None
        self._ready = asyncio.Event()
        self._ready.set()

    def begin_work(self, envelope_id: UUID | None = None) -> None:
        """Note that the worker gets an event; one of the old kind takes no other until it calls ``ready``.

        Args:
            envelope_id: of which envelope; None for several at once, which none of the old kind gets.
        """
        if self._is_told:
            self._ready.clear()
        self._at_work = True
        self._last_worked_on = envelope_id

    def end_work(self) -> None:
        """Note that the worker's event is over, whatever came of it."""
        self._at_work = False

    def tell(self) -> None:
        """Note that the worker takes another event."""
        self._ready.set()

    def stopped(self) -> None:
        """Note that the worker has nothing open any more: then it need not say that it is ready."""
        if not self._at_work:
            self.tell()

    @property
    def is_ready(self) -> bool:
        """True if the worker takes another event now."""
        return self._ready.is_set()

    async def wait(self) -> None:
        """Wait until the worker takes another event."""
        await self._ready.wait()

    def is_awaited_after(self, envelope_id: UUID) -> bool:
        """Check whether the worker has yet to call ``ready`` after an event of an envelope, its last one."""
        return not self._ready.is_set() and self._last_worked_on == envelope_id
