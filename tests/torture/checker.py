"""Judges a history; pure. What it looks for is what the bus promises, and nothing is taken from the bus on trust but
which envelopes it says are received.

A commit says which broker handed the envelope out: the one that its program was led to before it registered last.
Nobody can say so of a program that listens. A broker that starts connects to it before that program has registered
anew, so any fault of broker or database still explains a repeat there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.torture.history import Commit, CommittedEvent, History, Received, Sent, Struck, owed
from tests.torture.items import envelope_headers, event_headers, event_ref

SETTLE_SECONDS = 1.0
"""How long after a commit it may still be unwritten that it was told: a fault until then may make it come again."""

INSIST_SECONDS = 60.0
"""How long before a loss what is lost in it may have gone into an outbox, and how long after it an emitter may still go
on with an envelope that is lost."""

LAST_CALLS_SECONDS = 10.0
"""How long the first call behind a loss and the last one of an emitter that goes on may take together."""

DELAY = "delay-database"
"""The kind of the faults that make each write of the database wait."""

TWO_BROKERS = frozenset({"two_brokers", "leader-freeze", "leader-cut-off", "leader-silence"})
"""The kinds of the strikes in which one broker takes over from another that lives on, on PostgreSQL."""

EVERYBODYS = frozenset({"broker", "database"})
"""Targets whose faults concern every consumer."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept.

    Args:
        kind: ``lost``, ``invented``, ``torn``, ``reordered`` or ``duplicated``.
        what: the envelope and the role, in a sentence.
    """

    kind: str
    what: str


@dataclass(slots=True)
class Verdict:
    """What came out.

    Attributes:
        acknowledged: items in envelopes whose sealing was acknowledged.
        delivered: items in envelopes that every role which is owed them has committed.
        gone_with_database: items that only a database had acknowledged which was lost, while its standby lagged.
        duplicated: commits of what a role had committed before.
        duplicates_allowed: those of them that a fault explains.
    """

    acknowledged: int = 0
    delivered: int = 0
    gone_with_database: int = 0
    duplicated: int = 0
    duplicates_allowed: int = 0
    violations: list[Violation] = field(default_factory=list)

    def count(self, kind: str) -> int:
        """How many violations there are of a kind."""
        return sum(violation.kind == kind for violation in self.violations)


def check(history: History) -> Verdict:
    """Judge a run that has come to rest."""
    violations = [
        *_lost(history),
        *(violation for role in sorted(history.commits) for violation in _of_role(history, role)),
    ]
    explained = [_is_explained(history, role, *pair) for role, *pair in _repeated(history)]
    return Verdict(
        acknowledged=sum(sent.items for sent in history.sent.values() if sent.sealed),
        delivered=sum(_items(envelope) for envelope_id, envelope in _delivered(history)),
        gone_with_database=sum(sent.items for sent, received in _sealed(history) if _is_gone(history, sent, received)),
        duplicated=len(explained),
        duplicates_allowed=sum(explained),
        violations=violations,
    )


def missing(history: History) -> list[tuple[str, str]]:
    """Which received envelopes are not committed where they are owed: pairs of role and envelope id."""
    committed = {role: {commit.envelope_id for commit in commits} for role, commits in history.commits.items()}
    return [
        (role, envelope_id)
        for envelope_id, envelope in history.received.items()
        for role in sorted(_owed(history, envelope))
        if envelope_id not in committed.get(role, ())
    ]


# -- nothing lost ------------------------------------------------------------------------------------------------------


def _lost(history: History) -> Iterator[Violation]:
    for sent, received in _sealed(history):
        if _is_gone(history, sent, received):
            continue
        if received is None:
            yield Violation("lost", f"{_name(sent)} was acknowledged as sealed, and the journal has not received it")
        elif sent.position not in (None, received.position):
            yield Violation("lost", f"{_name(sent)} is at position {received.position}, its receipt says otherwise")
    for role, envelope_id in missing(history):
        position = history.received[envelope_id].position
        why = history.rows.get((role, envelope_id), "it has no row")
        yield Violation("lost", f"envelope {envelope_id} at position {position} never reached {role}: {why}")


def _sealed(history: History) -> Iterator[tuple[Sent, Received | None]]:
    """All that was acknowledged as sealed, with what the journal has of it."""
    arrived = {commit.ref: commit.envelope_id for commits in history.commits.values() for commit in commits}
    for sent in history.sent.values():
        if sent.sealed:
            yield sent, history.received.get(sent.envelope_id or arrived.get(sent.ref, ""))


def _is_gone(history: History, sent: Sent, received: Received | None) -> bool:
    return received is None and _may_be_lost(history, sent)


def _may_be_lost(history: History, sent: Sent) -> bool:
    """Whether the database lost it that acknowledged it: nothing may be lost that was acknowledged later."""
    # What went into an outbox was acknowledged by that alone.
    earlier = INSIST_SECONDS if sent.envelope_id is None else 0.0
    return any(lost[0] - earlier <= sent.sealed_at <= lost[1] for lost in history.losses)


def _owed(history: History, envelope: Received) -> set[str]:
    return owed(envelope, history.routes, history.chained)


def _delivered(history: History) -> Iterator[tuple[str, Received]]:
    lacking = {envelope_id for _, envelope_id in missing(history)}
    return ((name, envelope) for name, envelope in history.received.items() if name not in lacking)


def _items(envelope: Received) -> int:
    return sum(items for _, items in envelope.events)


# -- what a role committed ---------------------------------------------------------------------------------------------


def _of_role(history: History, role: str) -> Iterator[Violation]:
    by_ref: dict[str, str] = {}
    for commit in history.commits[role]:
        yield from _of_commit(history, role, commit)
        ref = commit.ref
        if ref and by_ref.get(ref) not in history.received and any(history.losses):
            # What was lost is sent anew as another envelope.
            by_ref[ref] = commit.envelope_id
        if ref and by_ref.setdefault(ref, commit.envelope_id) != commit.envelope_id:
            known = by_ref[ref]
            yield Violation("duplicated", f"{role} committed {ref} as envelope {known} and as {commit.envelope_id}")
    for _, first, second in _repeated(history, role):
        if not _is_explained(history, role, first, second):
            by_two = _is_of_superseded(history, role, first, second)
            why = "it was delivered by two brokers" if by_two else "no fault explains it"
            seconds = second.at - first.at
            what = f"{role} committed envelope {first.envelope_id} again, {seconds:.1f} s later, and {why}"
            yield Violation("duplicated", what)
    if role in history.ordered:
        yield from _out_of_order(history, role)


def _of_commit(history: History, role: str, commit: Commit) -> Iterator[Violation]:
    sent = history.sent_as(commit)
    where = f"envelope {commit.envelope_id} ({commit.ref}) at {role}"
    for event in commit.events:
        if event.strange:
            yield Violation("invented", f"{where}: nobody sent {event.strange[0]}")
    if sent is None:
        yield Violation("invented", f"{where}: nobody sent it")
    elif not sent.sealing:
        yield Violation("invented", f"{where}: its emitter never asked to seal it")
    elif commit.envelope_id not in history.received:
        if not _was_lost(history, commit):
            yield Violation("invented", f"{where}: the journal has not received it")
    elif sent.envelope_id not in (None, commit.envelope_id):
        yield Violation("invented", f"{where}: its emitter was told the id {sent.envelope_id}")
    else:
        yield from _compare(where, _expected(history, role, sent, commit.envelope_id), commit.events)


def _was_lost(history: History, commit: Commit) -> bool:
    """Whether the database that handed it out was lost behind that."""
    return any(
        fault.lost is not None and fault.lost[0] <= commit.at <= _noticed(history, fault) for fault in history.faults
    )


def _noticed(history: History, loss: Struck) -> float:
    """When a broker has noticed a loss at the latest: by its next write, which a slow database may delay."""
    until = loss.until + SETTLE_SECONDS
    for fault in sorted(history.faults, key=lambda fault: fault.since):
        if fault.kind == DELAY and loss.since <= fault.until and fault.since <= until:
            until = max(until, fault.until + SETTLE_SECONDS)
    return until


def refusal_is_explained(history: History, at: float) -> bool:
    """Whether an emitter may have gone on with an envelope that the database has lost.

    It gives up with the last call that it begins in its time, and begins that time with its first call behind the loss.
    """
    return any(lost[0] <= at <= lost[1] + INSIST_SECONDS + LAST_CALLS_SECONDS for lost in history.losses)


def _expected(history: History, role: str, sent: Sent, envelope_id: str) -> list[CommittedEvent]:
    """What a role should have got of an envelope."""
    is_chained = role in history.chained
    # A node adds a correlation id where there is none.
    bare = {"correlation_id": envelope_id} if is_chained else {}
    return [
        _expected_event(sent, number, bare)
        for number, (type_name, items) in enumerate(sent.events)
        if role in history.routes[type_name] and (items or not is_chained)
    ]


def _expected_event(sent: Sent, number: int, bare: Mapping[str, str]) -> CommittedEvent:
    type_name, items = sent.events[number]
    ref = event_ref(sent.ref, number)
    headers = envelope_headers(sent.ref) | event_headers(ref) if sent.headed else bare
    if not items:
        return CommittedEvent(type_name, "", (), headers=headers)
    return CommittedEvent(type_name, ref, ((0, items),), headers=headers)


def _compare(where: str, expected: Sequence[CommittedEvent], found: Sequence[CommittedEvent]) -> Iterator[Violation]:
    expected_refs, found_refs = _names(expected), _names(found)
    if Counter(expected_refs) != Counter(found_refs):
        yield Violation("torn", f"{where}: it has the events {found_refs} and should have {expected_refs}")
        return
    if expected_refs != found_refs:
        yield Violation("reordered", f"{where}: its events came as {found_refs} instead of {expected_refs}")
    yield from _compare_headers(where, expected, found)
    wanted = {event.ref: event.runs for event in expected}
    for event in found:
        if event.runs == wanted[event.ref]:
            continue
        kind = "reordered" if sorted(_indices(event.runs)) == _indices(wanted[event.ref]) else "torn"
        yield Violation(kind, f"{where}: {event.ref} has the items {event.runs} instead of {wanted[event.ref]}")


def _compare_headers(
    where: str, expected: Sequence[CommittedEvent], found: Sequence[CommittedEvent]
) -> Iterator[Violation]:
    """Compare the headers, whatever the order of the events is."""
    expected_headers = sorted(sorted(event.headers.items()) for event in expected)
    found_headers = sorted(sorted(event.headers.items()) for event in found)
    if expected_headers != found_headers:
        yield Violation("torn", f"{where}: it has the headers {found_headers} and should have {expected_headers}")


def _names(events: Iterable[CommittedEvent]) -> list[tuple[str, str]]:
    return [(event.type_name, event.ref) for event in events]


def _indices(runs: Iterable[tuple[int, int]]) -> list[int]:
    return [index for first, length in runs for index in range(first, first + length)]


# -- nothing twice, in order -------------------------------------------------------------------------------------------


def _repeated(history: History, only: str | None = None) -> Iterator[tuple[str, Commit, Commit]]:
    """Each commit of what the role had committed before, with the one before."""
    for role in history.commits if only is None else (only,):
        last: dict[str, Commit] = {}
        for commit in history.commits[role]:
            if commit.envelope_id in last:
                yield role, last[commit.envelope_id], commit
            last[commit.envelope_id] = commit


def _is_explained(history: History, role: str, first: Commit, second: Commit) -> bool:
    """Whether a fault struck between the hand-over and the moment at which it was surely written that it is done."""
    if _is_of_superseded(history, role, first, second):
        return False
    concerned = EVERYBODYS | {role}
    until = min(first.at + SETTLE_SECONDS, second.at)
    return any(
        fault.target in concerned
        and fault.since <= until
        and fault.until >= first.begun
        and (fault.kind not in TWO_BROKERS or _takeover_explains(history, fault, first, second))
        for fault in history.faults
    )


def _takeover_explains(history: History, fault: Struck, first: Commit, second: Commit) -> bool:
    """Whether a strike with two brokers explains a repeat: what one broker could not note, another one redelivers.

    The broker that was frozen may have taken a consumer for lost, and redeliver what it handed out itself.
    """
    frozen = sum(takeover.since < fault.since for takeover in history.takeovers)
    return None in (first.reign, second.reign) or first.reign != second.reign or first.reign == frozen


def _is_of_superseded(history: History, role: str, first: Commit, second: Commit) -> bool:
    """Whether a broker delivered again what its successor had delivered, and must have known of that successor.

    1. The successor takes over. 2. It delivers the envelope. 3. The old broker hands the same one out: until it looks
    at its row, it may. What a program has received before it is stopped or cut off, it commits later.
    """
    if first.reign is None or second.reign is None or second.reign >= first.reign:
        return False
    takeover = history.takeovers[second.reign]
    is_late = any(
        fault.target == role and fault.since <= second.begun and fault.until >= takeover.since
        for fault in history.faults
    )
    return second.begun > takeover.until and not is_late


def _out_of_order(history: History, role: str) -> Iterator[Violation]:
    """What came for the first time behind a later one; what comes again after a crash stands where it stood before."""
    last: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    for commit in history.commits[role]:
        sent, received = history.sent_as(commit), history.received.get(commit.envelope_id)
        if sent is None or received is None or commit.envelope_id in seen:
            continue
        seen.add(commit.envelope_id)
        if received.position < last[sent.key]:
            what = f"{role} committed position {received.position} behind {last[sent.key]} of the key {sent.key!r}"
            yield Violation("reordered", what)
        last[sent.key] = max(last[sent.key], received.position)


def _name(sent: Sent) -> str:
    return f"envelope {sent.envelope_id} ({sent.ref})"
