"""Roles, their programs and their pauses, as objects."""

from datetime import datetime

from xbus.admin.objects.base import JsonObject, shown
from xbus.broker.journal.operations.roles import RoleStatus
from xbus.broker.journal.writes import PauseEntry, PresenceInstance, PresenceWork


def of_role(role: RoleStatus, alarm: str | None, now: datetime) -> JsonObject:
    lag_seconds = None if role.owed_since is None else round((now - role.owed_since).total_seconds(), 3)
    return {
        "role": role.role,
        "service": role.service,
        "kind": role.kind,
        "state": role.state,
        "since": role.since,
        "seen_at": role.seen_at,
        "noted_at": role.noted_at,
        "work": [_of_work(work) for work in role.work],
        "lag": role.lag,
        "lag_seconds": lag_seconds,
        "owed_since": role.owed_since,
        "parked_envelopes": role.parked,
        "parked_items": role.parked_items,
        "alarm": alarm,
        "instances": [_of_instance(instance) for instance in role.instances],
        "pause": None if role.pause is None else of_pause(role.pause),
    }


def _of_instance(instance: PresenceInstance) -> JsonObject:
    return {
        "uri": instance["uri"],
        "state": instance["state"],
        "since": datetime.fromisoformat(instance["since"]),
        "seen_at": datetime.fromisoformat(instance["seen_at"]),
        "work": [_of_work(work) for work in instance["work"] or ()],
    }


def of_pause(pause: PauseEntry) -> JsonObject:
    return shown(pause, "subject_id", until="until_at")


def _of_work(work: PresenceWork) -> JsonObject:
    return {
        "envelope_id": work["envelope_id"],
        "event_id": work.get("event_id"),
        "position": work.get("position"),
        "verb": work["verb"],
        "since": work["since"],
        "done": work.get("done"),
        "of": work.get("of"),
        "progress": progress_of(work),
    }


def progress_of(work: PresenceWork) -> float | None:
    """Give the finished part of a work, from 0 to 1; None where its recipient does not tell it."""
    done, of = work.get("done"), work.get("of")
    return min(1.0, done / of) if done is not None and of else None
