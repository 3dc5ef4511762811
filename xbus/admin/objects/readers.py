"""Readers, their ranges and their history, as objects."""

from xbus.admin.objects.base import JsonObject
from xbus.broker.journal.readers.status import PlaceMove, RangeStatus, ReaderStatus


def of_reader(status: ReaderStatus) -> JsonObject:
    return {
        "reader": status.entry.name,
        "state": status.state,
        "types": [*status.event_types],
        "ranges": len(status.ranges),
        "programs": status.programs,
        "at_place": str(status.place),
        "lag": status.lag,
        "owed_since": status.waits_since,
        "skipped": status.skipped,
        "keeps": status.entry.keeps,
        "paused": status.is_paused,
    }


def of_range(status: RangeStatus) -> JsonObject:
    found = status.range
    return {
        "range": found.id,
        "state": found.state,
        "first": f"{found.first:016x}",
        "last": f"{found.last:016x}",
        "at_place": str(found.place),
        "batch_end": str(found.batch_end) if found.handed_out else None,
        "program": None if found.owner is None else str(found.owner),
        "role": status.role,
        "counter": found.counter,
        "lease_expires_at": status.expires_at,
        "settled_at": status.settled_at,
        "behind": status.behind,
    }


def of_move(move: PlaceMove) -> JsonObject:
    return {
        "act_id": str(move.act),
        "at": move.at,
        "who": move.who,
        "action": move.kind,
        "reason": move.reason or None,
        "undoes": None if move.undoes is None else str(move.undoes),
        "first": move.first,
        "last": move.last,
        "from_place": str(move.before),
        "to_place": str(move.after),
    }
