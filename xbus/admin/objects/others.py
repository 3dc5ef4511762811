"""Logins, the audit, event types, descriptors, outboxes and clearing as objects."""

from collections.abc import Sequence

from xbus.admin.clearing_databases import ClearingDatabase
from xbus.admin.objects.base import JsonObject, shown
from xbus.broker.journal.api_tokens import ApiToken
from xbus.broker.journal.audit.reading import AuditRow
from xbus.broker.journal.audit.verifying import Verification
from xbus.broker.journal.database.clearing_items import ClearingItem
from xbus.broker.journal.log.sessions import LoginKind, LoginSessions
from xbus.broker.journal.operations.descriptors import DescriptorSummary
from xbus.broker.journal.operations.event_types import TypeCount
from xbus.emitter.outbox import OutboxStatus
from xbus.rpc.codec import Value


def of_sessions(found: LoginSessions) -> JsonObject:
    return shown(found)


def of_api_token(token: ApiToken) -> JsonObject:
    return shown(token, name="token", used_at="last_used_at")


def of_keys(kind: LoginKind, login: str, key: str) -> JsonObject:
    return {"kind": kind, "login": login, "public_key": key}


def of_audit_row(row: AuditRow) -> JsonObject:
    return {"row": row.number, **shown(row.act), "hash": row.hash}


def of_verification(found: Verification) -> JsonObject:
    return {"rows": found.rows, "cut": str(found.cut), "head": str(found.head), "faults": found.faults}


def of_type(count: TypeCount) -> JsonObject:
    return shown(count, name="type", recent="events_last_hour")


def of_descriptor(summary: DescriptorSummary) -> JsonObject:
    return shown(summary, name="descriptor", size="bytes")


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


def of_clearing_item(item: ClearingItem, value: Value, database: ClearingDatabase) -> JsonObject:
    found = shown(item, "data", id="item_id")
    return {**found, "value": value, "consumer": database.consumer, "request_types": database.request_types}
