"""Whole small envelopes, as they come in a bundle."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xbus.errors import Refused
from xbus.recipient.item import Batch
from xbus.rpc.codec import Key, Value


class WholeEvent(NamedTuple):
    """An event with all of its items."""

    id: str
    type_name: str
    batches: Sequence[Batch]
    headers: Mapping[Key, Value] | None = None


class WholeEnvelope(NamedTuple):
    """An envelope with all of its events, and what the broker tells of it."""

    id: str
    events: Sequence[WholeEvent]
    note: list[Value] | None = None

    @classmethod
    def of_wire(cls, value: Value) -> "WholeEnvelope":
        """The envelope in ``[envelope_id, [[event_id, type_name, batches], ...]]``, with or without a note behind.

        Behind the batches of an event there may be its headers.

        Raises:
            Refused: it has not that form (``wrong_arguments``), or its items do not fit together (``bad_items``).
        """
        note: list[Value] | None = None
        match value:
            case [str(envelope_id), list(entries)]:
                pass
            case [str(envelope_id), list(entries), list(note)]:
                pass
            case _:
                raise _wrong_form()
        events = [_event_of_wire(entry) for entry in entries]
        if len({event.id for event in events}) < len(events):
            raise _wrong_form()
        return cls(envelope_id, events, note)


def _event_of_wire(value: Value) -> WholeEvent:
    match value:
        case [str(event_id), str(type_name), list(batches)]:
            return WholeEvent(event_id, type_name, [Batch.of_wire(batch) for batch in batches])
        case [str(event_id), str(type_name), list(batches), dict(headers)]:
            return WholeEvent(event_id, type_name, [Batch.of_wire(batch) for batch in batches], headers)
    raise _wrong_form()


def _wrong_form() -> Refused:
    return Refused(
        "an envelope of a bundle is not [envelope_id, [[event_id, type_name, batches], ...]], each event once",
        code="wrong_arguments",
    )
