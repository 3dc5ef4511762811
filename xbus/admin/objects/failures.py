"""Failures and parked work as objects."""

from xbus.admin.objects.base import JsonObject, shown
from xbus.broker.journal.operations.failures import (
    FailureDetail,
    FailureGroup,
    FailureSummary,
    GroupDetail,
)
from xbus.broker.journal.operations.parked import Parked
from xbus.broker.journal.operations.parked_list import ParkedSummary


def of_failure(summary: FailureSummary) -> JsonObject:
    return shown(summary, id="failure_id", message="cause")


def of_failure_detail(detail: FailureDetail) -> JsonObject:
    return {**of_failure(detail.summary), "history": [shown(move) for move in detail.history]}


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
        "history": [shown(move) for move in detail.history],
    }


def of_parked_part(summary: ParkedSummary) -> JsonObject:
    return shown(summary, "role_id")


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
