"""The answers to why as objects."""

from xbus.admin.objects.base import JsonObject
from xbus.admin.objects.failures import of_failure
from xbus.admin.objects.roles import of_pause
from xbus.admin.why.findings import Finding


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
