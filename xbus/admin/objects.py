"""Things of the bus as objects that commands and monitor write in JSON, with the names of ``docs/json.md``; pure."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from xbus.admin.why.findings import Finding
from xbus.broker.journal.api_tokens import ApiToken
from xbus.broker.journal.audit import AuditRow, Verification
from xbus.broker.journal.log.sessions import LoginKind, LoginSessions
from xbus.broker.journal.operations.bots import BotRunStatus, BotStatus
from xbus.broker.journal.operations.descriptors import DescriptorSummary
from xbus.broker.journal.operations.envelopes.chains import ChainLink
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, EnvelopeSummary, EventSummary
from xbus.broker.journal.operations.event_types import TypeCount
from xbus.broker.journal.operations.failures import FailureDetail, FailureGroup, FailureSummary, GroupDetail
from xbus.broker.journal.operations.parked import Parked, ParkedSummary
from xbus.broker.journal.operations.roles import RoleStatus
from xbus.broker.journal.people import PersonToken
from xbus.broker.journal.readers.parked import ParkedBatch
from xbus.broker.journal.readers.status import PlaceMove, RangeStatus, ReaderStatus
from xbus.broker.journal.readers.subscriptions import SubscriptionEntry
from xbus.broker.journal.writes import PauseEntry, PresenceInstance, PresenceWork
from xbus.emitter.outbox import OutboxStatus
from xbus.rights import Person, Right, write_rights

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


JsonObject: TypeAlias = Mapping[str, object]


def fields_of(value: "DataclassInstance", *hidden: str, **names: str) -> dict[str, object]:
    """Make an object of all fields of a value, in their order.

    Args:
        hidden: fields that the object does not have.
        names: the names of fields that are called otherwise in the object.
    """
    found = (field.name for field in fields(value) if field.name not in hidden)
    return {names.get(name, name): getattr(value, name) for name in found}


def of_role(role: RoleStatus, owed_days: float, now: datetime) -> JsonObject:
    lag_seconds = None if role.owed_since is None else round((now - role.owed_since).total_seconds(), 3)
    return {
        **fields_of(role, "role_id", parked="parked_envelopes"),
        "work": [_of_work(work) for work in role.work],
        "lag_seconds": lag_seconds,
        "alarm": "owed_too_long" if role.owes_too_long(owed_days, now) else None,
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
    return fields_of(pause, "subject_id", until="until_at")


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


def of_bot(bot: BotStatus, now: datetime) -> JsonObject:
    waits = None if bot.slowed_until is None else max(round((bot.slowed_until - now).total_seconds(), 3), 0.0)
    renamed = {
        "name": "bot",
        "work": "call",
        "runners": "service",
        "instances": "max_instances",
        "attempts": "max_attempts",
        "next_slot": "next_at",
        "failures": "failed_attempts",
        "slowed_until": "slowed_until_at",
    }
    return {
        **fields_of(bot, "last", **renamed),
        "state": bot.state,
        "cron": bot.cron or None,
        "slowed_seconds": waits,
        "pause": None if bot.pause is None else of_pause(bot.pause),
        "last_run": None if bot.last is None else of_run(bot.last),
    }


def of_run(run: BotRunStatus) -> JsonObject:
    return fields_of(run, "log", id="run_id", slot="slot_at")


def of_failure(summary: FailureSummary) -> JsonObject:
    return fields_of(summary, id="failure_id", message="cause")


def of_failure_detail(detail: FailureDetail) -> JsonObject:
    return {**of_failure(detail.summary), "history": [fields_of(move) for move in detail.history]}


def of_failure_group(group: FailureGroup) -> JsonObject:
    newest = group.newest
    return {
        "fingerprint": group.fingerprint,
        "role": newest.role,
        "verb": newest.verb,
        "code": newest.code,
        "cause": newest.message,
        "failed_calls": group.count,
        "at_least": group.at_least,
        "by_tracking": [{"tracking": state, "failed_calls": count} for state, count in group.tracking.items()],
        "owners": group.owners,
        "oldest_at": group.first_at,
        "newest_at": newest.at,
        "failure_id": newest.id,
        "envelope_id": newest.envelope_id,
    }


def of_group_detail(detail: GroupDetail) -> JsonObject:
    return {
        **of_failure_group(detail.group),
        "failures": [of_failure(failure) for failure in detail.failures],
        "history": [fields_of(move) for move in detail.history],
    }


def of_parked_part(summary: ParkedSummary) -> JsonObject:
    return fields_of(summary, "role_id")


def of_parked(parked: Parked) -> JsonObject:
    return {
        **fields_of(parked, "envelope_id", "role_id", "items"),
        "delivery": parked.delivery and fields_of(parked.delivery),
        "item_states": [
            {**fields_of(item, "event_id", number="event_number"), "role": parked.role, "state": "parked"}
            for item in parked.items
        ],
    }


def of_chain_link(link: ChainLink) -> JsonObject:
    return fields_of(link, by_bulk="bulk_roles")


def of_envelope(summary: EnvelopeSummary) -> JsonObject:
    found = fields_of(summary, id="envelope_id", origin="origin_id")
    return {**found, "roles": [fields_of(role, changed_at="since") for role in summary.roles]}


def of_envelope_detail(detail: EnvelopeDetail) -> JsonObject:
    return {
        **of_envelope(detail.summary),
        "hash": detail.hash,
        "headers": detail.headers,
        "event_list": [_of_event(event) for event in detail.event_list],
        "failures": [of_failure(failure) for failure in detail.failures],
        "item_states": [fields_of(item, number="event_number", at="since") for item in detail.overlaid],
        "outputs": [fields_of(output, number="event_number") for output in detail.outputs],
        "archive": None if detail.archive is None else fields_of(detail.archive, files="file_list"),
    }


def _of_event(event: EventSummary) -> JsonObject:
    return fields_of(event, id="event_id", number="event_number", reply="reply_state")


def of_finding(finding: Finding) -> JsonObject:
    proof = finding.proof
    return {
        "code": finding.code.value,
        "cause": finding.cause,
        "next_step": finding.next_step,
        "role": finding.role,
        "proof": {
            **fields_of(proof, place="at_login"),
            "failure": None if proof.failure is None else of_failure(proof.failure),
            "pause": None if proof.pause is None else of_pause(proof.pause),
        },
    }


def of_sessions(found: LoginSessions) -> JsonObject:
    return fields_of(found)


def of_api_token(token: ApiToken) -> JsonObject:
    return fields_of(token, name="token", used_at="last_used_at")


def of_keys(kind: LoginKind, login: str, key: str) -> JsonObject:
    return {"kind": kind, "login": login, "public_key": key}


def of_audit_row(row: AuditRow) -> JsonObject:
    return {"row": row.number, **fields_of(row.act), "hash": row.hash}


def of_verification(found: Verification) -> JsonObject:
    return {"rows": found.rows, "cut": str(found.cut), "head": str(found.head), "faults": found.faults}


def of_type(count: TypeCount) -> JsonObject:
    return fields_of(count, name="type", recent="events_last_hour")


def of_descriptor(summary: DescriptorSummary) -> JsonObject:
    return fields_of(summary, name="descriptor", size="bytes")


def of_outbox(status: OutboxStatus) -> JsonObject:
    trouble = None
    if status.trouble is not None:
        code, cause, since = status.trouble
        trouble = {"code": code, "cause": cause, "since": since}
    hidden = ("envelope_id", "ordering_key", "headers")
    return {
        **fields_of(status, waiting_bytes="bytes", oldest="oldest_at"),
        "trouble": trouble,
        "refused": [fields_of(each, *hidden, size="bytes") for each in status.refused],
    }


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
        **fields_of(move, "before", "after", act="act_id", kind="action"),
        "reason": move.reason or None,
        "from_place": str(move.before),
        "to_place": str(move.after),
    }


def of_subscription(each: SubscriptionEntry, reader: ReaderStatus) -> JsonObject:
    hidden = ("service_id", "ranges", "failed_at", "secret", "reader_name")
    return {
        **fields_of(each, *hidden, name="subscription", failures="failed_calls", failing_since="since"),
        "reader": each.reader_name,
        "state": subscription_state(each, reader),
        "signed": bool(each.secret),
        "types": [*reader.event_types],
        "at_place": str(reader.place),
        "lag": reader.lag,
        "owed_since": reader.waits_since,
        "parked_batches": 0 if reader.subscriber is None else reader.subscriber.parked,
    }


def of_parked_batch(each: ParkedBatch) -> JsonObject:
    return fields_of(each, "range", id="batch")


def subscription_state(each: SubscriptionEntry, reader: ReaderStatus) -> str:
    """Say in a word how a subscription is."""
    if each.ended_at is not None:
        return "ended"
    if reader.is_paused:
        return "paused"
    return "failing" if each.failures else "calling" if reader.programs else "waiting"


def of_person(person: Person, sessions: int) -> JsonObject:
    return {**fields_of(person, "id", name="person"), "rights": _of_rights(person.rights), "sessions": sessions}


def of_person_token(person: Person, token: PersonToken) -> JsonObject:
    found = fields_of(token, "id", name="token", used_at="last_used_at")
    return {"person": person.name, **found, "rights": _of_rights(token.rights)}


def _of_rights(rights: Collection[Right]) -> list[str]:
    return write_rights(rights).split()
