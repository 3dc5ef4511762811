"""Explains an envelope, an event or an item as a whole; pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from shlex import quote
from uuid import UUID

from xbus.admin.why.deliveries import Surroundings, explain_delivery, explain_not_owed
from xbus.admin.why.findings import Code, Finding, Proof, by_urgency, counted, moment
from xbus.admin.why.roles import explain_unknown_role
from xbus.broker.journal.log.overlays import AS_SENT, CORRECTED
from xbus.broker.journal.operations.envelopes.details import MOST_EVENTS, EnvelopeDetail
from xbus.broker.journal.operations.why.envelopes import EnvelopeFacts
from xbus.broker.journal.operations.why.subjects import EventFacts, ItemFacts
from xbus.rpc.messages.insight import RefusedCall
from xbus.states import EnvelopeState, ItemState


def explain_unknown(asked: str, oldest: datetime | None) -> Finding:
    """Explain why nobody knows an id.

    Args:
        asked: the id, or its first digits.
        oldest: when the oldest envelope was opened that the journal still knows.
    """
    cause = (
        f"neither an envelope nor an event has the id {asked}: it never reached the bus, or it was removed from the "
        f"journal, whose oldest envelope is of {moment(oldest)}"
    )
    next_step = "see the emitter's log and xbus outbox status, and xbus envelope list for what is there"
    return Finding(Code.UNKNOWN_ID, cause, next_step, proof=Proof(since=oldest))


def explain_refused(call: RefusedCall, envelope_id: UUID) -> Finding:
    """Explain that the front refused a call about an envelope."""
    at = datetime.fromisoformat(call["at"])
    cause = f"the front refused {call['verb']} for it at {moment(at)}, with the code {call['code']}"
    proof = Proof(envelope_id, since=at, verb=call["verb"])
    next_step = "see the cause in the emitter's log, or in xbus outbox status; the code stands in docs/wire.md"
    return Finding(Code.REFUSED, cause, next_step, proof=proof)


def explain_envelope(facts: EnvelopeFacts, around: Surroundings) -> list[Finding]:
    """Explain an envelope, or the part of it that is asked about; the first finding is the answer."""
    summary, part = facts.detail.summary, facts.part
    if summary.state is EnvelopeState.OPEN:
        return [_open(facts)]
    if summary.state is EnvelopeState.CANCELLED:
        return [_cancelled(facts)]
    if facts.is_gone:
        return [_pruned(facts.end.pruned_at, summary.id)]
    if part.role is not None and facts.is_unknown_role:
        return [explain_unknown_role(part.role)]
    if part.event is not None and facts.event is None:
        return [_unknown_event(part.event, facts.detail)]
    if facts.event is not None and part.item is not None and part.item >= (facts.event.items or 0):
        return [_unknown_item(part.item, facts.event)]
    if not facts.deliveries:
        not_owed = [explain_not_owed(found) for found in facts.not_owed]
        return [*(not_owed or [_no_consumer(facts)]), *_archived(facts)]
    deliveries = [explain_delivery(delivery, around) for delivery in facts.deliveries]
    return [*by_urgency(_with_items(facts, deliveries)), *_archived(facts)]


def _open(facts: EnvelopeFacts) -> Finding:
    summary, events = facts.detail.summary, facts.detail.event_list
    ended, is_cut = sum(event.items is not None for event in events), len(events) == MOST_EVENTS
    listed = f"the first {len(events)}" if is_cut else "them"
    cause = (
        f"{summary.emitter} has not sealed it: it is open since {moment(summary.opened_at)} with "
        f"{counted(len(events), 'event', at_least=is_cut)}, {ended} of {listed} ended, and nobody sees it "
        "before its seal"
    )
    proof = Proof(summary.id, state=summary.state.value, since=summary.opened_at, place=summary.emitter)
    return Finding(Code.OPEN, cause, f"xbus why --emitter {quote(summary.emitter)}", proof=proof)


def _cancelled(facts: EnvelopeFacts) -> Finding:
    summary = facts.detail.summary
    cause = (
        f"it was cancelled at {moment(summary.closed_at)}, and nobody got it: {facts.end.reason or 'no reason is kept'}"
    )
    proof = Proof(summary.id, state=summary.state.value, since=summary.closed_at, place=summary.emitter)
    return Finding(Code.CANCELLED, cause, f"have {summary.emitter} send it again", proof=proof)


def _pruned(at: datetime | None, envelope_id: UUID) -> Finding:
    cause = f"all roles had got it or gone without, and its content was removed at {moment(at)}"
    return Finding(Code.PRUNED, cause, "[journal] keep_settled_days says how long", proof=Proof(envelope_id, since=at))


def _no_consumer(facts: EnvelopeFacts) -> Finding:
    only = facts.detail.summary.only_roles
    if only is not None:
        return _no_role(facts, ", ".join(only))
    told, types = "it has no events", ", ".join(facts.types)
    if types:
        told = f"the {'graphs' if len(facts.types) > 1 else 'graph'} of {types} led to no consumer when it was sent"
    cause = f"it is owed to nobody: {told}"
    proof = Proof(facts.detail.summary.id, state=facts.detail.summary.state.value, since=facts.detail.summary.closed_at)
    return Finding(Code.NO_CONSUMER, cause, "see the graphs with xbus export", proof=proof)


def _no_role(facts: EnvelopeFacts, only: str) -> Finding:
    """Explain a repeat: its graphs lead to a service, whose roles have gone since it was sent."""
    summary = facts.detail.summary
    cause = (
        f"it is owed to nobody: it repeats envelope {summary.origin} for {only} alone, and the service to which its "
        "graph leads has no role any more"
    )
    next_step = "xbus edit, to give the service its role again"
    proof = Proof(summary.id, summary.origin, state=summary.state.value, since=summary.closed_at, place=only)
    return Finding(Code.NO_ROLE, cause, next_step, proof=proof)


def _archived(facts: EnvelopeFacts) -> list[Finding]:
    archive = facts.detail.archive
    if archive is None or archive.restored_at is not None:
        return []
    files = ", ".join(archive.files[:1]) or "no file, as it has no items"
    cause = f"its items were archived at {moment(archive.archived_at)}: {files}"
    proof = Proof(facts.detail.summary.id, since=archive.archived_at)
    return [Finding(Code.ARCHIVED, cause, f"xbus envelope show {facts.detail.summary.id}", proof=proof)]


# -- items -------------------------------------------------------------------------------------------------------------

_ITEM_CODES: Mapping[str, Code] = {
    ItemState.PARKED.value: Code.ITEM_PARKED,
    ItemState.RESUMED.value: Code.ITEM_RESUMED,
    ItemState.DROPPED.value: Code.ITEM_DROPPED,
    CORRECTED: Code.ITEM_CORRECTED,
    AS_SENT: Code.ITEM_CORRECTED,
}


def _with_items(facts: EnvelopeFacts, deliveries: Sequence[Finding]) -> list[Finding]:
    """Replace the envelope's finding at a role by the finding of the item, if the item has one."""
    own = [_item(item, facts) for item in facts.items if facts.part.role in (None, item.role)]
    roles = {finding.role for finding in own if finding.code is not Code.ITEM_CORRECTED}
    return [*own, *(finding for finding in deliveries if finding.role not in roles)]


def _item(item: ItemFacts, facts: EnvelopeFacts) -> Finding:
    code, envelope_id = _ITEM_CODES[item.state], facts.detail.summary.id
    who, name = item.role or "all roles that lack it", f"item {facts.part.item}"
    show = f"xbus parked show {envelope_id} --item {facts.part.item}"
    told = {
        Code.ITEM_PARKED: (f"{name} is parked alone for {who} since {moment(item.at)}: {item.cause}", show),
        Code.ITEM_RESUMED: (f"{name} went to {who} as envelope {item.resumed_as}", f"xbus why {item.resumed_as}"),
        Code.ITEM_DROPPED: (f"a person decided at {moment(item.at)} that {who} goes without {name}", show),
        Code.ITEM_CORRECTED: (f"{name} was corrected for {who} at {moment(item.at)}: {item.cause}", show),
    }
    cause, next_step = told[code]
    proof = Proof(envelope_id, item.resumed_as, item.state, item.at, items=1, place=item.role)
    return Finding(code, cause, next_step, item.role, proof)


def _unknown_event(number: int, detail: EnvelopeDetail) -> Finding:
    cause = f"the envelope has {counted(detail.summary.events or 0, 'event')}, and none with the number {number}"
    next_step = f"xbus envelope show {detail.summary.id}"
    return Finding(Code.UNKNOWN_EVENT, cause, next_step, proof=Proof(detail.summary.id))


def _unknown_item(index: int, event: EventFacts) -> Finding:
    number = "no end yet" if event.items is None else counted(event.items, "item")
    cause = f"event {event.number} ({event.type}) has {number}, and none with the index {index}; the first is 0"
    next_step = f"xbus envelope items {event.envelope_id}"
    return Finding(Code.UNKNOWN_ITEM, cause, next_step, proof=Proof(event.envelope_id, items=event.items))
