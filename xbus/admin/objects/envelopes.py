"""Envelopes as objects."""

from xbus.admin.objects.base import JsonObject, shown
from xbus.admin.objects.failures import of_failure
from xbus.broker.journal.operations.envelopes.chains import ChainLink
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, EnvelopeSummary, EventSummary


def of_chain_link(link: ChainLink) -> JsonObject:
    return shown(link, by_bulk="bulk_roles")


def of_envelope(summary: EnvelopeSummary) -> JsonObject:
    found = shown(summary, id="envelope_id", origin="origin_id")
    return {**found, "roles": [shown(role, changed_at="since") for role in summary.roles]}


def of_envelope_detail(detail: EnvelopeDetail) -> JsonObject:
    return {
        **of_envelope(detail.summary),
        "hash": detail.hash,
        "headers": detail.headers,
        "event_list": [_of_event(event) for event in detail.event_list],
        "failures": [of_failure(failure) for failure in detail.failures],
        "item_states": [shown(item, number="event_number", at="since") for item in detail.overlaid],
        "outputs": [shown(output, number="event_number") for output in detail.outputs],
        "archive": None if detail.archive is None else shown(detail.archive, files="file_list"),
    }


def _of_event(event: EventSummary) -> JsonObject:
    return shown(event, id="event_id", number="event_number", reply="reply_state")
