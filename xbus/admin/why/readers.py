"""Explains a reader, or the subscription that stands on one: why it lags, or that it is well; pure."""

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from xbus.admin.why.findings import Code, Finding, Proof, counted, moment
from xbus.broker.journal.operations.why.readers import ReaderFacts
from xbus.broker.journal.readers.status import MOST_COUNTED_EVENTS, ReaderStatus
from xbus.broker.journal.readers.subscribers import SubscriberStatus
from xbus.states import RangeState


def explain_reader(facts: ReaderFacts) -> list[Finding]:
    """Explain a reader; the first finding is the answer."""
    return [*_detached(facts.status), *_parked(facts.status), _state(facts)]


def _detached(status: ReaderStatus) -> Iterator[Finding]:
    if status.entry.is_detached:
        name = status.entry.name
        cause = f"{name} lags further than its max_lag allows, so retention waits for it no longer{_lag(status)}"
        yield Finding(Code.READER_DETACHED, cause, f"xbus reader show {quote(name)}", proof=_proof(status))


def _parked(status: ReaderStatus) -> Iterator[Finding]:
    subscriber = status.subscriber
    if subscriber is not None and subscriber.parked:
        name = subscriber.name
        number = "1 batch" if subscriber.parked == 1 else f"{subscriber.parked:,} batches"
        cause = f"its subscriber took {number} of {name} at no attempt, so that is parked; what came behind goes on"
        next_step = f"xbus parked batch list --subscription {quote(name)}"
        yield Finding(Code.BATCHES_PARKED, cause, next_step, proof=_proof(status))


def _state(facts: ReaderFacts) -> Finding:
    status, subscriber = facts.status, facts.status.subscriber
    name, lag = status.entry.name, _lag(status)
    if subscriber is not None and subscriber.ended_at is not None:
        cause = f"the subscriber of {subscriber.name} said at {moment(subscriber.ended_at)} that it wants no more{lag}"
        proof = Proof(state=subscriber.state, since=subscriber.ended_at, place=subscriber.name)
        next_step = f"xbus subscription resume {quote(subscriber.name)} --reason …"
        return Finding(Code.SUBSCRIPTION_ENDED, cause, next_step, proof=proof)
    if facts.pause is not None:
        proof = Proof(state=status.state.value, since=facts.pause.since, place=name, pause=facts.pause)
        return Finding(Code.READER_PAUSED, f"the {facts.pause.told}{lag}", facts.pause.resume_command, proof=proof)
    if subscriber is not None and subscriber.failures:
        return _failing(subscriber, lag)
    if not status.programs:
        program = "a gateway with start_xbushttp" if subscriber is not None else f"a program that reads {name}"
        cause = f"no program has a range of {name}{lag}"
        return Finding(Code.READER_ABSENT, cause, f"start {program}", proof=_proof(status))
    if facts.archived is not None:
        cause = f"only an archive has the next envelope of {name}, and it waits until the broker has put that back{lag}"
        next_step = f"xbus health, then xbus restore {facts.archived} if that fails"
        return Finding(Code.ARCHIVE_AWAITED, cause, next_step, proof=replace(_proof(status), other_id=facts.archived))
    if status.lag:
        free = sum(each.range.state is RangeState.FREE for each in status.ranges)
        of_all = f"{free} of its {counted(len(status.ranges), 'range')} without a program"
        told = f", with {of_all}" if free else ""
        cause = f"{counted(status.programs, 'program')} of {name} read{'s' if status.programs == 1 else ''}{told}{lag}"
        return Finding(Code.READER_BEHIND, cause, f"xbus reader show {quote(name)}", proof=_proof(status))
    return Finding(Code.READER_WELL, f"{name} has settled each event of its types", proof=_proof(status))


def _failing(subscriber: SubscriberStatus, lag: str) -> Finding:
    cause = (
        f"{counted(subscriber.failures, 'call')} of {subscriber.name} failed one after another since "
        f"{moment(subscriber.failing_since)}, the last with {subscriber.code}: {subscriber.error}{lag}"
    )
    proof = Proof(
        state=subscriber.state,
        since=subscriber.failing_since,
        until_at=subscriber.retry_at,
        attempts=subscriber.failures,
        place=subscriber.name,
    )
    next_step = f"xbus subscription show {quote(subscriber.name)}, then repair what it calls; calls go on by themselves"
    return Finding(Code.SUBSCRIPTION_FAILING, cause, next_step, proof=proof)


def _lag(status: ReaderStatus) -> str:
    """Word how far the reader is behind, behind a sentence."""
    if not status.lag:
        return ""
    number = counted(status.lag, "event", at_least=status.lag >= MOST_COUNTED_EVENTS)
    return f", and {number} from {status.place} on wait, the oldest since {moment(status.waits_since)}"


def _proof(status: ReaderStatus) -> Proof:
    return Proof(state=status.state.value, since=status.waits_since, place=status.entry.name)
