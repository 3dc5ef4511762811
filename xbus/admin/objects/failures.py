"""Failures and parked work as objects."""

from xbus.admin.objects.base import JsonObject
from xbus.broker.journal.operations.failures import (
    FailureDetail,
    FailureGroup,
    FailureSummary,
    GroupDetail,
    PastMove,
)
from xbus.broker.journal.operations.parked import Parked
from xbus.broker.journal.operations.parked_list import ParkedSummary


def of_failure(summary: FailureSummary) -> JsonObject:
    return {
        "failure_id": summary.id,
        "at": summary.at,
        "envelope_id": summary.envelope_id,
        "event_id": summary.event_id,
        "node": summary.node,
        "role": summary.role,
        "verb": summary.verb,
        "code": summary.code,
        "cause": summary.message,
        "indices": summary.indices,
        "tracking": summary.tracking,
        "fingerprint": summary.fingerprint,
        "owner": summary.owner,
    }


def of_failure_detail(detail: FailureDetail) -> JsonObject:
    return {**of_failure(detail.summary), "history": [_of_past_move(move) for move in detail.history]}


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
        "history": [_of_past_move(move) for move in detail.history],
    }


def _of_past_move(move: PastMove) -> JsonObject:
    return {
        "at": move.at,
        "who": move.who,
        "action": move.action,
        "tracking": move.tracking,
        "owner": move.owner,
        "comment": move.comment,
    }


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
