"""The answers to why as objects."""

from xbus.admin.objects.base import JsonObject, shown
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
            **shown(proof, place="at_login"),
            "failure": None if proof.failure is None else of_failure(proof.failure),
            "pause": None if proof.pause is None else of_pause(proof.pause),
        },
    }
