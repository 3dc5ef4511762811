"""Envelopes and events as the author of a recipient sees them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from xbus.errors import Refused
from xbus.files import IncomingFile
from xbus.headers import HeaderValue, unpack_headers
from xbus.recipient.refusal import Refusal
from xbus.rpc.codec import Key, Value

NOTE_FIELDS = 6
"""The fields of a note that are read; a newer broker may tell more behind them."""

MOST_TOLD = 2**63 - 1
"""The greatest number that a report of progress holds, as msgpack and the journal take no greater one."""


@dataclass(eq=False, slots=True)
class Envelope:
    """An envelope that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        state: the author's own, empty at first: a transaction, an open file, a count.
        is_stopped: set as soon as the envelope is to be rolled back, while a method may still work on it: what is long
            may end then.
        emitter: the login of the emitter that sent it.
        key: the emitter's name for it, None without one.
        ordering_key: as the emitter gave it, None without one.
        position: its place among all sealed envelopes of the bus. A repeated delivery has the same, a replay another.
        sealed_at: when it was sealed, in UTC.
        attempt: how often it comes to this recipient, with this time; 1 for the first time.
        headers: as the emitter gave them to the envelope, by name; empty without any. Moments are in UTC.
        files: what ``Event.save`` writes.

    The six before the headers are None where the bus says nothing: in an event with an immediate reply, as the envelope
    is not sealed yet; in a ``rollback`` of an envelope that is not known here; and with a broker older than 0.3.0.
    """

    id: str
    state: dict[str, Any] = field(default_factory=dict)
    is_stopped: bool = False
    emitter: str | None = None
    key: str | None = None
    ordering_key: str | None = None
    position: int | None = None
    sealed_at: datetime | None = None
    attempt: int | None = None
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    files: list[IncomingFile] = field(default_factory=list)

    def read_note(self, note: list[Value]) -> None:
        """Take up what the broker tells of the envelope.

        Raises:
            Refused: it is no note (``wrong_arguments``).
        """
        # Not by patterns of match, which take longer than all else that is done for a small envelope here.
        if len(note) < NOTE_FIELDS:
            raise _no_note()
        emitter, key, ordering_key, position, sealed_at, attempt = note[:NOTE_FIELDS]
        if (
            (emitter is not None and not isinstance(emitter, str))
            or (key is not None and not isinstance(key, str))
            or (ordering_key is not None and not isinstance(ordering_key, str))
            or (sealed_at is not None and not isinstance(sealed_at, float | int))
            or not isinstance(position, int)
            or not isinstance(attempt, int)
        ):
            raise _no_note()
        self.emitter, self.key, self.ordering_key = emitter, key, ordering_key
        self.position, self.attempt = position, attempt
        self.sealed_at = None if sealed_at is None else datetime.fromtimestamp(sealed_at, UTC)


def _no_note() -> Refused:
    return Refused("a note is not [emitter, key, ordering_key, position, sealed_at, attempt]", code="wrong_arguments")


class WireHeaders(NamedTuple):
    """The headers in a call of the broker."""

    headers: Mapping[str, HeaderValue]
    partition_key: str | None
    envelope_headers: Mapping[str, HeaderValue]

    @classmethod
    def of_wire(cls, told: Mapping[Key, Value]) -> "WireHeaders":
        """Read the map in which the broker tells them.

        Raises:
            Refused: it has another form (``wrong_arguments``, ``bad_header``).
        """
        match told.get("headers"), told.get("partition_key"), told.get("envelope_headers"):
            case (bytes() | None as headers, str() | None as key, bytes() | None as of_envelope):
                return cls(unpack_headers(headers), key, unpack_headers(of_envelope))
        raise Refused("headers are not a map of headers, partition_key and envelope_headers", code="wrong_arguments")


@dataclass(eq=False, slots=True)
class Event:
    """An event that is being delivered.

    Attributes:
        id: its UUID as text; the same each time that it comes.
        type_name: its event type.
        envelope: the envelope that it belongs to.
        state: the author's own, empty at first.
        taken: how many of its items have been through the author's code.
        headers: as the emitter gave them to the event or to its envelope, by name; the event's own count where both
            have a name. Moments are in UTC. Behind a worker an event has them, too.
        partition_key: as the emitter gave it, None without one.
        file: what ``save`` writes, with the name and the size that its sender gave; None without it.
    """

    id: str
    type_name: str
    envelope: Envelope
    state: dict[str, Any] = field(default_factory=dict)
    taken: int = 0
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    partition_key: str | None = None
    file: IncomingFile | None = None
    _told: tuple[int, int | None] | None = None
    _steps: int = 0

    def read_headers(self, headers: Mapping[Key, Value]) -> None:
        """Take up the headers that the broker tells of the event, and with its first event of the envelope.

        Raises:
            Refused: they are no headers (``wrong_arguments``, ``bad_header``).
        """
        own, self.partition_key, of_envelope = WireHeaders.of_wire(headers)
        if of_envelope:
            self.envelope.headers = of_envelope
        self.headers = {**self.envelope.headers, **own}

    def save(self, path: str | os.PathLike[str]) -> IncomingFile:
        """Write the file that the event brings, in ``on_event_start``; its items come to no other method then::

            def on_event_start(self, event):
                event.save(f"/in/{event.id}.pdf")

        The file is complete and checked when ``on_event_end`` is called. It appears at its path, in the place of one
        that is there, when the envelope is committed: ``commit`` finds it. A rollback removes what was written.

        Args:
            path: of the file; or a folder that is there, for the name that its sender gave it.

        Raises:
            OSError: nothing can be written there; the broker redelivers the envelope then.
            Refusal: items of the event have come already.
        """
        if self.taken or self.file is not None:
            raise Refusal("event.save comes too late: call it once, in on_event_start")
        self.file = IncomingFile(path, self.id)
        self.envelope.files.append(self.file)
        return self.file

    def progress(self, done: int, of: int | None = None) -> None:
        """Report the progress of a long piece of work, from any thread, as a sign of life.

        Only a method that works on many items at once, or long on one, needs it: ``on_item`` counts its items anyway.
        Operators see the report::

            for number, page in enumerate(pages):
                event.progress(number, len(pages))

        Args:
            done: the work done, in any unit.
            of: the whole work, if it is known.
        """
        # A heartbeat with anything else could not be sent.
        self._told = (min(int(done), MOST_TOLD), None if of is None else min(int(of), MOST_TOLD))
        self._steps += 1

    @property
    def steps(self) -> int:
        """Grows while the author's code advances."""
        return self.taken + self._steps

    @property
    def told(self) -> tuple[int, int | None]:
        """The work done, and the whole of it: as the author reported, otherwise the items taken."""
        return self._told or (self.taken, None)
