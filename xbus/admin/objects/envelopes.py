"""Envelopes as objects."""

from xbus.admin.objects.base import JsonObject
from xbus.admin.objects.failures import of_failure
from xbus.broker.journal.archive.reading import Whereabouts
from xbus.broker.journal.bulk.summaries import OutputSummary
from xbus.broker.journal.log.overlays import OverlaidItem
from xbus.broker.journal.log.role_progress import RoleProgress
from xbus.broker.journal.operations.envelopes.chains import ChainLink
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, EnvelopeSummary, EventSummary


def of_chain_link(link: ChainLink) -> JsonObject:
    return {
        "envelope_id": link.envelope_id,
        "parent_id": link.parent_id,
        "way": link.way,
        "emitter": link.emitter,
        "state": link.state,
        "types": link.types,
        "position": link.position,
        "items": link.items,
        "opened_at": link.opened_at,
        "closed_at": link.closed_at,
        "bulk_roles": link.by_bulk,
    }


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
