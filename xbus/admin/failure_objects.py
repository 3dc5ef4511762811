"""The objects of failures and of their groups, by the names of ``docs/json.md``; pure."""

from collections.abc import Mapping
from typing import TypeAlias

from xbus.broker.journal.operations.failures import FailureDetail, FailureGroup, FailureSummary, PastMove

FailureObject: TypeAlias = Mapping[str, object]


def of_failure(summary: FailureSummary) -> FailureObject:
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


def of_failure_detail(detail: FailureDetail) -> FailureObject:
    return {**of_failure(detail.summary), "history": [_of_past_move(move) for move in detail.history]}


def of_failure_group(group: FailureGroup) -> FailureObject:
    newest = group.newest
    return {
        "fingerprint": group.fingerprint,
        "role": newest.role,
        "verb": newest.verb,
        "code": newest.code,
        "cause": newest.message,
        "failed_calls": group.count,
        "by_tracking": [{"tracking": state, "failed_calls": count} for state, count in group.tracking.items()],
        "owners": group.owners,
        "oldest_at": group.first_at,
        "newest_at": newest.at,
        "failure_id": newest.id,
        "envelope_id": newest.envelope_id,
    }


def _of_past_move(move: PastMove) -> FailureObject:
    return {
        "at": move.at,
        "who": move.who,
        "action": move.action,
        "tracking": move.tracking,
        "owner": move.owner,
        "comment": move.comment,
    }
