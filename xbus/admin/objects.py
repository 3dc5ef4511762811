"""The objects that commands write as JSON: one name for one thing, as ``docs/json.md`` lists them; pure.

An id ends with ``_id``, a moment with ``_at`` or is called ``since`` where a state began then, a list that has a number
of the same name beside it ends with ``_list``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from xbus.admin.clearing_databases import ClearingDatabase
from xbus.admin.failure_objects import of_failure
from xbus.admin.why.findings import Finding
from xbus.broker.journal.archive.reading import Whereabouts
from xbus.broker.journal.audit.reading import AuditRow
from xbus.broker.journal.audit.verifying import Verification
from xbus.broker.journal.bulk.summaries import OutputSummary
from xbus.broker.journal.database.clearing_items import ClearingItem
from xbus.broker.journal.log.overlays import OverlaidItem
from xbus.broker.journal.log.role_progress import RoleProgress
from xbus.broker.journal.log.sessions import LoginKind, LoginSessions
from xbus.broker.journal.operations.descriptors import DescriptorSummary
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, EnvelopeSummary, EventSummary
from xbus.broker.journal.operations.event_types import TypeCount
from xbus.broker.journal.operations.parked import Parked
from xbus.broker.journal.operations.parked_list import ParkedSummary
from xbus.broker.journal.operations.roles import RoleStatus
from xbus.broker.journal.writes import PauseEntry, PresenceInstance, PresenceWork
from xbus.emitter.outbox import OutboxStatus
from xbus.rpc.codec import Value

JsonObject: TypeAlias = Mapping[str, object]

# -- logins ------------------------------------------------------------------------------------------------------------


def of_sessions(found: LoginSessions) -> JsonObject:
    return {
        "kind": found.kind,
        "login": found.login,
        "sessions": found.sessions,
        "expires_at": found.expires_at,
    }


def of_keys(kind: LoginKind, login: str, key: str) -> JsonObject:
    return {"kind": kind, "login": login, "public_key": key}


# -- the audit ---------------------------------------------------------------------------------------------------------


def of_audit_row(row: AuditRow) -> JsonObject:
    act = row.act
    return {
        "row": row.number,
        "at": act.at,
        "who": act.who,
        "origin": act.origin,
        "action": act.action,
        "object": act.object,
        "before": act.before,
        "after": act.after,
        "reason": act.reason,
        "hash": row.hash,
    }


def of_verification(found: Verification) -> JsonObject:
    return {"rows": found.rows, "cut": str(found.cut), "head": str(found.head), "faults": found.faults}


# -- envelopes ---------------------------------------------------------------------------------------------------------


def of_envelope(summary: EnvelopeSummary) -> JsonObject:
    return {
        "envelope_id": summary.id,
        "state": summary.state,
        "position": summary.position,
        "emitter": summary.emitter,
        "key": summary.key,
        "ordering_key": summary.ordering_key,
        "opened_at": summary.opened_at,
        "closed_at": summary.closed_at,
        "events": summary.events,
        "items": summary.items,
        "bytes": summary.bytes,
        "origin_id": summary.origin,
        "only_roles": summary.only_roles,
        "parked_items": summary.parked_items,
        "roles": [_of_progress(role) for role in summary.roles],
    }


def of_envelope_detail(detail: EnvelopeDetail) -> JsonObject:
    return {
        **of_envelope(detail.summary),
        "hash": detail.hash,
        "headers": detail.headers,
        "event_list": [_of_event(event) for event in detail.event_list],
        "failures": [of_failure(failure) for failure in detail.failures],
        "item_states": [_of_overlaid(item) for item in detail.overlaid],
        "outputs": [_of_output(output) for output in detail.outputs],
        "archive": None if detail.archive is None else _of_archive(detail.archive),
    }


def _of_progress(role: RoleProgress) -> JsonObject:
    return {
        "role": role.role,
        "service": role.service,
        "state": role.state,
        "attempts": role.attempts,
        "code": role.code,
        "cause": role.cause,
        "since": role.changed_at,
        "under_way": role.under_way,
    }


def _of_event(event: EventSummary) -> JsonObject:
    return {
        "event_id": event.id,
        "event_number": event.number,
        "type": event.type,
        "state": event.state,
        "items": event.items,
        "estimate": event.estimate,
        "reply_state": event.reply,
        "reply_cause": event.reply_cause,
        "headers": event.headers,
        "partition_key": event.partition_key,
    }


def _of_overlaid(item: OverlaidItem) -> JsonObject:
    return {
        "role": item.role,
        "event_number": item.number,
        "index": item.index,
        "state": item.state,
        "since": item.at,
        "cause": item.cause,
    }


def _of_output(output: OutputSummary) -> JsonObject:
    return {
        "attempt_id": output.attempt_id,
        "event_number": output.number,
        "node": output.node,
        "role": output.role,
        "state": output.state,
        "progress": output.progress,
        "items": output.items,
        "bytes": output.bytes,
        "started_at": output.started_at,
        "ended_at": output.ended_at,
        "code": output.code,
        "cause": output.cause,
    }


def _of_archive(archive: Whereabouts) -> JsonObject:
    return {
        "archived_at": archive.archived_at,
        "restored_at": archive.restored_at,
        "file_list": archive.files,
    }


# -- parked parts ------------------------------------------------------------------------------------------------------


def of_parked_part(summary: ParkedSummary) -> JsonObject:
    return {
        "envelope_id": summary.envelope_id,
        "position": summary.position,
        "role": summary.role,
        "service": summary.service,
        "types": summary.types,
        "parked_items": summary.parked_items,
        "attempts": summary.attempts,
        "code": summary.code,
        "cause": summary.cause,
        "since": summary.since,
    }


def of_parked(parked: Parked) -> JsonObject:
    whole = parked.delivery
    return {
        "role": parked.role,
        "service": parked.service,
        "removed": parked.removed,
        "delivery": whole
        and {"attempts": whole.attempts, "code": whole.code, "cause": whole.cause, "since": whole.since},
        "item_states": [
            {
                "role": parked.role,
                "event_number": item.number,
                "index": item.index,
                "state": "parked",
                "since": item.since,
                "code": item.code,
                "cause": item.cause,
            }
            for item in parked.items
        ],
    }


# -- roles, types and others -------------------------------------------------------------------------------------------


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
    return {
        "kind": pause.kind,
        "name": pause.name,
        "reason": pause.reason,
        "paused_by": pause.paused_by,
        "since": pause.since,
        "until_at": pause.until,
    }


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


def of_type(count: TypeCount) -> JsonObject:
    return {
        "type": count.name,
        "events": count.events,
        "items": count.items,
        "events_last_hour": count.recent,
        "newest_at": count.newest_at,
    }


def of_descriptor(summary: DescriptorSummary) -> JsonObject:
    return {"descriptor": summary.name, "mimetype": summary.mimetype, "bytes": summary.size}


def of_outbox(status: OutboxStatus) -> JsonObject:
    trouble = None
    if status.trouble is not None:
        code, cause, since = status.trouble
        trouble = {"code": code, "cause": cause, "since": since}
    refused: Sequence[JsonObject] = [
        {
            "place": each.place,
            "queued_at": each.queued_at,
            "bytes": each.size,
            "key": each.key,
            "code": each.code,
            "cause": each.cause,
        }
        for each in status.refused
    ]
    return {
        "waiting": status.waiting,
        "bytes": status.waiting_bytes,
        "oldest_at": status.oldest,
        "trouble": trouble,
        "refused": refused,
    }


# -- clearing ----------------------------------------------------------------------------------------------------------


def of_clearing_item(item: ClearingItem, value: Value, database: ClearingDatabase) -> JsonObject:
    return {
        "item_id": item.id,
        "state": item.state,
        "type": item.type,
        "item_type": item.item_type,
        "received_at": item.received_at,
        "cleared_at": item.cleared_at,
        "event_id": item.event_id,
        "value": value,
        "consumer": database.consumer,
        "request_types": database.request_types,
    }


# -- findings ----------------------------------------------------------------------------------------------------------


def of_finding(finding: Finding) -> JsonObject:
    proof = finding.proof
    return {
        "code": finding.code.value,
        "cause": finding.cause,
        "next_step": finding.next_step,
        "role": finding.role,
        "proof": {
            "envelope_id": proof.envelope_id,
            "other_id": proof.other_id,
            "state": proof.state,
            "since": proof.since,
            "until_at": proof.until_at,
            "seen_at": proof.seen_at,
            "attempts": proof.attempts,
            "envelopes": proof.envelopes,
            "items": proof.items,
            "service": proof.service,
            "verb": proof.verb,
            "at_login": proof.place,
            "failure": None if proof.failure is None else of_failure(proof.failure),
            "pause": None if proof.pause is None else of_pause(proof.pause),
        },
    }
