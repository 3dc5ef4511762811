"""Explains why a role has an envelope, has not got it yet, or never gets it. Roles and envelopes as a whole, too; pure.

The journal comes first: it is what counts. Only of an envelope that would arrive by itself the memory of the back says
what keeps it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from shlex import quote
from typing import TypeAlias
from uuid import UUID

from xbus.admin.output import counted
from xbus.admin.why.findings import Code, Finding, Proof, by_urgency, explain_obstacle, gone, moment, unaware
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY
from xbus.broker.journal.log.event_states import DONE, DROPPED, OWED, REROUTED, RETRIED
from xbus.broker.journal.log.overlays import AS_SENT, CORRECTED
from xbus.broker.journal.operations.envelopes.details import MOST_EVENTS, EnvelopeDetail
from xbus.broker.journal.operations.stalled import add_up
from xbus.broker.journal.operations.why.envelopes import (
    MOST_AHEAD,
    DeliveryFacts,
    EnvelopeFacts,
    EventFacts,
    ItemFacts,
    KeyedEnvelope,
    NotOwed,
)
from xbus.broker.journal.operations.why.roles import RoleFacts
from xbus.broker.journal.writes import PauseEntry, longest
from xbus.rpc.messages import CallInHand, Insight, RefusedCall, RoleInsight
from xbus.states import ConsumerState, DeliveryState, EnvelopeState, ItemState

LIST = "xbus recipient list"


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a delivery at the moment of the answer.

    Args:
        insight: the memory of the back; None if the back can't be reached.
        now: the moment.
        keyed: by position, the envelopes that are in flight to ordered roles.
        logins: of the roles that the memory of the back names beside, by their ids.
    """

    insight: Insight | None
    now: datetime
    keyed: Mapping[int, KeyedEnvelope] = field(default_factory=dict)
    logins: Mapping[int, str] = field(default_factory=dict)

    def login(self, role_id: int) -> str:
        """Give the login of a role, or its id if nobody has it."""
        return self.logins.get(role_id, f"role {role_id}")

    def role(self, role_id: int) -> RoleInsight | None:
        """Give what the back knows of a role; None if it does not know the role, or can't be reached."""
        roles = [] if self.insight is None else self.insight["roles"]
        return next((role for role in roles if role["role"] == role_id), None)


def explain_delivery(facts: DeliveryFacts, around: Surroundings) -> Finding:
    """Explain an envelope at one consumer role, by the first reason that is found; the last step always finds one."""
    found = (step(facts, around) for step in _EXPLAINED[facts.progress.state])
    return next(finding for finding in found if finding is not None)


def explain_not_owed(found: NotOwed) -> Finding:
    """Explain why a role was never owed an envelope."""
    login = found.role.login
    return Finding(Code.NOT_OWED, found.cause, f"xbus why --role {quote(login)}", login, Proof(place=login))


# -- what is over, or up to a person -----------------------------------------------------------------------------------


def _delivered(facts: DeliveryFacts, around: Surroundings) -> Finding:
    login, number = facts.progress.role, facts.parked_items
    if number:
        cause = f"{login} has committed the envelope without {counted(number, 'item')}, parked alone"
        return _found(Code.ITEMS_PARKED, facts, cause, f"xbus parked show {facts.envelope_id} {_quoted_role(facts)}")
    return _found(Code.DELIVERED, facts, f"{login} has committed the envelope")


def _resent(facts: DeliveryFacts, around: Surroundings) -> Finding:
    cause = f"it was parked for {facts.progress.role}, and went on as envelope {facts.resent_as}"
    return _found(Code.RESENT, facts, cause, f"xbus why {facts.resent_as}", other=facts.resent_as)


def _dropped(facts: DeliveryFacts, around: Surroundings) -> Finding:
    cause = f"a person decided that {facts.progress.role} goes without it: {facts.progress.cause}"
    return _found(Code.DROPPED, facts, cause, "xbus replay --help shows how it is sent again")


def _rerouted(facts: DeliveryFacts, around: Surroundings) -> Finding:
    cause = f"a person decided that it goes another way than to {facts.progress.role}: {facts.progress.cause}"
    return _found(Code.REROUTED, facts, cause, f"xbus envelope show {facts.envelope_id}")


def _parked(facts: DeliveryFacts, around: Surroundings) -> Finding:
    login, progress = facts.progress.role, facts.progress
    attempts = counted(progress.attempts or 0, "attempt")
    cause = f"it is parked for {login} since {moment(progress.changed_at)} after {attempts}: {progress.cause}"
    next_step = f"xbus parked show {facts.envelope_id} {_quoted_role(facts)}, then xbus parked resume, correct or drop"
    return _found(Code.PARKED, facts, cause, next_step)


# -- what would arrive by itself ---------------------------------------------------------------------------------------


Step: TypeAlias = Callable[[DeliveryFacts, Surroundings], Finding | None]
"""A reason that is looked for; None where it is not the one."""


def _configured(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    """Look whether the configuration keeps the role from it."""
    role = facts.role
    if role is None:
        cause = f"the service {facts.progress.service} has no role yet, so nobody can get it"
        return _found(Code.NO_ROLE, facts, cause, "give the service a role in the bus file, then xbus apply")
    if role.removed_at is not None:
        cause = (
            f"{role.login} was removed at {moment(role.removed_at)}; the bus keeps what it lacks in case it comes "
            "back, unless a decision to drop or reroute it is being carried out"
        )
        next_step = f"name {role.login} in the bus file again, then xbus apply"
        return _found(Code.ROLE_REMOVED, facts, cause, next_step, since=role.removed_at)
    if role.pause is not None:
        told = f"the {role.pause.told}"
        return _found(
            Code.ROLE_PAUSED, facts, told, role.pause.resume_command, since=role.pause.since, pause=role.pause
        )
    return None


def _out_of_reach(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    if facts.role is None or around.role(facts.role.id) is not None:
        return None
    if around.insight is not None:
        return _found(Code.BACK_UNAWARE, facts, *unaware(facts.role.login))
    noted = f": {facts.progress.cause}" if facts.progress.cause else ""
    cause = f"the back can't be reached, so nothing is delivered; the journal notes it as {facts.progress.state}{noted}"
    return _found(Code.BACK_UNREACHABLE, facts, cause, "xbus health, then start_xbusbroker if it does not run")


def _settled(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    if not _insight(facts, around)["is_settled"]:
        return None
    cause = f"the back knows what has become of it at {facts.progress.role}, and writes that down now"
    return _found(Code.UNWRITTEN, facts, cause, "ask again; if this remains, xbus health says what the journal lacks")


def _in_flight(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    told = _insight(facts, around)
    if facts.position not in told["in_flight"]:
        return None
    in_hand = _in_hand(facts, around)
    if in_hand is not None:
        since = datetime.fromisoformat(in_hand["since"])
        last = in_hand["verb"] or "still to come"
        login = around.login(in_hand["role"])
        cause = f"{login} has it in hand since {moment(since)}; the last call is {last}"
        verb = in_hand["verb"] or None
        return _found(Code.UNDER_WAY, facts, cause, LIST, since=since, verb=verb, place=login)
    if (earlier := _key_in_hand(facts, around)) is not None:
        return earlier
    if busy := _busy(facts, around):
        cause = f"each worker of {', '.join(busy)} is at work with another event, and it waits for one"
        return _found(Code.WORKER_BUSY, facts, cause, LIST, service=busy[0])
    if not told["is_free"] and len(told["in_flight"]) > 1:
        return _slots_taken(facts, told)
    return _found(Code.UNDER_WAY, facts, f"its delivery to {facts.progress.role} begins now", LIST)


def _obstructed(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    """Look whether the role gets nothing at all now."""
    assert facts.role is not None, "a service without a role was looked for before"
    found = explain_obstacle(facts.role, _insight(facts, around), around.now)
    if found is None:
        return None
    since, until = found.proof.since, found.proof.until_at
    return _found(found.code, facts, found.cause, found.next_step, since=since, until=until)


def _in_turn(facts: DeliveryFacts, around: Surroundings) -> Finding:
    told, login = _insight(facts, around), facts.progress.role
    # An envelope in flight has had its turn, though it is not settled yet.
    number = len(set(facts.ahead).difference(told["in_flight"]))
    if number:
        ahead = counted(number, "envelope", at_least=len(facts.ahead) == MOST_AHEAD)
        cause = f"its turn at {login} is to come after {ahead}"
        return _found(Code.IN_LINE, facts, cause, f"xbus why {_quoted_role(facts)}", envelopes=number)
    if facts.is_archived:
        cause = f"only an archive has its items, and {login} waits until the broker has put them back"
        next_step = f"xbus health, then xbus restore {facts.envelope_id} if that fails"
        return _found(Code.ARCHIVE_AWAITED, facts, cause, next_step)
    if (in_hand := _key_in_hand(facts, around)) is not None:
        return in_hand
    if (grace := _grace(facts, around)) is not None:
        service, seconds = grace
        cause = f"the worker of {service} has just gone, and it waits {seconds:.0f} s more for the next one"
        until = around.now + timedelta(seconds=seconds)
        return _found(Code.WORKER_GRACE, facts, cause, f"start a worker of {service}", until=until, service=service)
    if not told["is_free"]:
        return _slots_taken(facts, told)
    if (row := _row_before(facts, around)) is not None:
        return row
    # Of the roles that read the log beside it, those matter that get this envelope too.
    if logins := [login for login in map(around.login, told["held_up_by"]) if login in facts.consumers]:
        others = ", ".join(logins)
        cause = f"it goes to {login} together with {others}, whose programs are all at work"
        return _found(Code.HELD_UP, facts, cause, f"xbus why --role {quote(logins[0])}", place=others)
    next_step = f"xbus why {_quoted_role(facts)}"
    return _found(Code.IN_LINE, facts, f"it is the next one for {login}", next_step, envelopes=0)


def _slots_taken(facts: DeliveryFacts, told: RoleInsight) -> Finding:
    programs, login = counted(told["programs"], "program"), facts.progress.role
    cause = f"the {programs} of {login} can take no more: {counted(len(told['in_flight']), 'envelope')} in flight"
    next_step = f"see their work with xbus recipient list; instances in the bus file lets more programs serve {login}"
    return _found(Code.SLOTS_TAKEN, facts, cause, next_step, envelopes=len(told["in_flight"]))


def _due(facts: DeliveryFacts, around: Surroundings) -> Finding:
    told, login, attempts = _insight(facts, around), facts.progress.role, facts.progress.attempts or 0
    so_far = f"{login} lacks it after {counted(attempts, 'attempt')} ({facts.progress.cause or facts.progress.code})"
    next_step = f"xbus envelope show {facts.envelope_id}"
    if facts.due_at is not None and facts.due_at > around.now:
        cause = f"{so_far}, and is given it again at {moment(facts.due_at)}"
        return _found(Code.RETRY_DUE, facts, cause, next_step, until=facts.due_at)
    if not told["is_free"] and told["in_flight"]:
        return _slots_taken(facts, told)
    if (before := _row_before(facts, around)) is not None:
        return before
    return _found(Code.RETRY_DUE, facts, f"{so_far}, and is given it again now", next_step)


def _row_before(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    """Look whether an ordered role has another envelope in flight: what has a row goes one after the other there."""
    in_flight = _insight(facts, around)["in_flight"]
    if facts.role is None or not facts.role.ordered or facts.progress.state == OWED or not in_flight:
        return None
    before, login = around.keyed.get(in_flight[0]), facts.role.login
    name = f"envelope {before.envelope_id}" if before is not None else f"position {in_flight[0]}"
    cause = f"{login} is ordered, and gets what it missed one after the other: {name} is in flight"
    if before is None:
        return _found(Code.BEHIND_ROW, facts, cause, f"xbus why --role {quote(login)}")
    next_step = f"xbus why {before.envelope_id} --role {quote(login)}"
    return _found(Code.BEHIND_ROW, facts, cause, next_step, other=before.envelope_id)


def _without_worker(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    if facts.progress.code == OUTPUT_NOT_READY:
        cause = f"{facts.progress.cause}: a bulk worker makes it, or is to make it"
        return _found(Code.OUTPUT_NOT_READY, facts, cause, f"xbus envelope show {facts.envelope_id}")
    service = facts.waits_for or ""
    pauses = [worker.pause for worker in facts.workers if worker.pause is not None]
    awaited = [worker for worker in facts.workers if worker.pause is None]
    if (pause := longest(pauses)) is not None and not awaited:
        cause = f"it needs a worker of {service}, and the {pause.told}"
        return _found(Code.WORKER_PAUSED, facts, cause, pause.resume_command, service=service, pause=pause)
    told = {worker.login: insight for worker in awaited if (insight := around.role(worker.id)) is not None}
    tripped = [login for login, insight in told.items() if insight["state"] == ConsumerState.TRIPPED]
    if tripped:
        since = told[tripped[0]]["trouble_since"]
        cause = f"it needs a worker of {service}, and one envelope after the other fails at {', '.join(tripped)}"
        at = None if since is None else datetime.fromisoformat(since)
        return _found(Code.WORKER_TRIPPED, facts, cause, f"xbus failure list --role {quote(tripped[0])}", since=at)
    if any(insight["programs"] for insight in told.values()):
        return None  # one has come: it goes on at once
    logins = ", ".join(worker.login for worker in awaited)
    # Programs of a paused role are there, and get nothing.
    away = [*(f"{each.login} {gone(each)}" for each in awaited), *(f"the {each.told}" for each in pauses)]
    cause = f"no worker of {service} is there ({', '.join(away) or 'it has no role'})"
    steps = [f"start a worker for {logins}" if logins else "give the service a role with xbus apply"]
    next_step = ", or ".join([*steps, *(pause.resume_command for pause in pauses)])
    return _found(Code.WORKER_ABSENT, facts, cause, next_step, service=service, place=logins or None)


def _behind_key(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    if facts.blocking is None:
        return None
    blocking, login = facts.blocking, facts.progress.role
    cause = (
        f"{login} is ordered, and gets envelope {blocking.envelope_id} of the same ordering key first, "
        f"which is {blocking.state}: {blocking.cause}"
    )
    next_step = f"xbus why {blocking.envelope_id} {_quoted_role(facts)}"
    return _found(Code.BEHIND_KEY, facts, cause, next_step, other=blocking.envelope_id)


# -- what they have in common ------------------------------------------------------------------------------------------


def _quoted_role(facts: DeliveryFacts) -> str:
    """Word the option that names the role of a delivery; a service that never had a role has none."""
    role = facts.progress.role
    return "" if role is None else f"--role {quote(role)}"


def _insight(facts: DeliveryFacts, around: Surroundings) -> RoleInsight:
    told = None if facts.role is None else around.role(facts.role.id)
    assert told is not None, "a back out of reach was looked for before"
    return told


def _in_hand(facts: DeliveryFacts, around: Surroundings) -> CallInHand | None:
    """Find who has the envelope in hand for this role: the role itself first, then a worker."""
    calls = [] if around.insight is None else around.insight["in_hand"]
    ours = [call for call in calls if around.login(call["role"]) == facts.progress.role]
    return next(iter([*ours, *(call for call in calls if around.login(call["role"]) not in facts.consumers)]), None)


def _busy(facts: DeliveryFacts, around: Surroundings) -> list[str]:
    busy = [] if around.insight is None else around.insight["busy"]
    return [facts.ways[key] for key in busy if key in facts.ways]


def _grace(facts: DeliveryFacts, around: Surroundings) -> tuple[str, float] | None:
    graces = [] if around.insight is None else around.insight["graces"]
    ours = (grace for grace in graces if grace["service"] in facts.ways)
    return next(((facts.ways[grace["service"]], grace["seconds"]) for grace in ours), None)


def _key_in_hand(facts: DeliveryFacts, around: Surroundings) -> Finding | None:
    """Look whether an ordered role has an earlier envelope of the same ordering key in hand."""
    if facts.role is None or not facts.role.ordered:
        return None
    login = facts.role.login
    earlier = [position for position in _insight(facts, around)["in_flight"] if position < facts.position]
    keyed = (around.keyed.get(position) for position in earlier)
    before = next((each for each in keyed if each is not None and each.ordering_key == facts.ordering_key), None)
    if before is None:
        return None
    cause = f"{login} has envelope {before.envelope_id} of the same ordering key in hand, which goes first"
    next_step = f"xbus why {before.envelope_id} --role {quote(login)}"
    return _found(Code.KEY_IN_HAND, facts, cause, next_step, other=before.envelope_id)


def _found(
    code: Code,
    facts: DeliveryFacts,
    cause: str,
    next_step: str = "",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    other: UUID | None = None,
    envelopes: int | None = None,
    service: str | None = None,
    verb: str | None = None,
    place: str | None = None,
    pause: PauseEntry | None = None,
) -> Finding:
    """Make a finding with the proof that every delivery has, and what this one has beside it."""
    progress, role = facts.progress, facts.role
    is_over = progress.state in (DONE, RETRIED, DROPPED, REROUTED)
    proof = Proof(
        envelope_id=facts.envelope_id,
        other_id=other,
        state=progress.state,
        since=since or progress.changed_at,
        until_at=until,
        seen_at=None if role is None else role.seen_at,
        attempts=progress.attempts,
        envelopes=envelopes,
        items=facts.parked_items or None,
        service=service,
        verb=verb,
        place=place or progress.role,
        failure=None if is_over else facts.failure,
        pause=pause,
    )
    return Finding(code, cause, next_step, progress.role, proof)


_EXPLAINED: Mapping[str, Sequence[Step]] = {
    DONE: (_delivered,),
    RETRIED: (_resent,),
    DROPPED: (_dropped,),
    REROUTED: (_rerouted,),
    OWED: (_configured, _out_of_reach, _settled, _in_flight, _obstructed, _in_turn),
    DeliveryState.PARKED.value: (_parked,),
    DeliveryState.RETRY.value: (_configured, _out_of_reach, _in_flight, _behind_key, _obstructed, _due),
    DeliveryState.WAITING.value: (
        *(_configured, _out_of_reach, _in_flight),
        *(_without_worker, _behind_key, _obstructed, _in_turn),
    ),
    DeliveryState.HELD.value: (_configured, _out_of_reach, _in_flight, _behind_key, _obstructed, _in_turn),
}
"""The reasons that are looked for in each state of a delivery, in this order."""


def explain_unknown_role(login: str) -> Finding:
    """Explain that no role has a login."""
    return Finding(Code.UNKNOWN_ROLE, f'no role has or had the login "{login}"', "xbus recipient list", login)


def explain_role(facts: RoleFacts, around: Surroundings, oldest: Finding | None = None) -> list[Finding]:
    """Explain a role; the first finding is the answer.

    Args:
        oldest: the finding of the oldest envelope that it lacks; None where it lacks none.
    """
    return by_urgency([_state(facts, around, oldest), *_parked_work(facts)])


def _state(facts: RoleFacts, around: Surroundings, oldest: Finding | None) -> Finding:
    role, login = facts.role, facts.role.login
    if role.removed_at is not None:
        cause = f"{login} was removed from the bus at {moment(role.removed_at)}, and is owed nothing new"
        return Finding(Code.ROLE_REMOVED, cause, "xbus export shows the roles", login, Proof(since=role.removed_at))
    if role.detached_at is not None:
        cause = f"{login} is detached since {moment(role.detached_at)}: it is owed nothing and can't register"
        next_step = f"xbus recipient attach {quote(login)}"
        return Finding(Code.ROLE_DETACHED, cause, next_step, login, Proof(since=role.detached_at))
    if role.pause is not None:
        cause, proof = f"the {role.pause.told}{_lacking(facts)}", _proof(facts, role.pause.since)
        return Finding(Code.ROLE_PAUSED, cause, role.pause.resume_command, login, proof)
    told = around.role(role.id)
    if told is None and around.insight is not None:
        return Finding(Code.BACK_UNAWARE, *unaware(login), login, _proof(facts, role.since))
    if told is None:
        cause = f"the back can't be reached, so nobody knows how {login} is now; by the journal it {gone(role)}"
        if role.absent_since is None and role.state is not None:
            cause = f"the back can't be reached; by the journal {login} was {role.state} at {moment(role.since)}"
        next_step = "xbus health, then start_xbusbroker if it does not run"
        return Finding(Code.BACK_UNREACHABLE, cause, next_step, login, _proof(facts, role.since))
    obstacle = explain_obstacle(role, told, around.now)
    if obstacle is not None:
        proof = _proof(facts, obstacle.proof.since, obstacle.proof.until_at)
        return Finding(obstacle.code, f"{obstacle.cause}{_lacking(facts)}", obstacle.next_step, login, proof)
    if oldest is not None:
        cause = f"{login} is registered{_lacking(facts)}; the oldest of them: {oldest.cause}"
        return Finding(Code.ROLE_BEHIND, cause, oldest.next_step, login, _proof(facts, None))
    work = "works for what comes" if role.is_worker else "lacks nothing that arrives by itself"
    return Finding(Code.ROLE_WELL, f"{login} is registered, and {work}", "", login, _proof(facts, role.since))


def _parked_work(facts: RoleFacts) -> Iterator[Finding]:
    login, both = facts.role.login, add_up([facts.parked, facts.parked_items])
    if both is None:
        return
    told = [found.told(what) for found, what in ((facts.parked, "envelope"), (facts.parked_items, "item")) if found]
    cause = f"{' and '.join(told)} parked for {login}, the oldest since {moment(both.since)}"
    proof = Proof(
        since=both.since,
        envelopes=facts.parked.number if facts.parked else None,
        items=facts.parked_items.number if facts.parked_items else None,
        place=login,
    )
    yield Finding(Code.PARKED, cause, f"xbus parked list --role {quote(login)}", login, proof)


def _lacking(facts: RoleFacts) -> str:
    """Word how much the role lacks, or how much waits for it, behind a sentence."""
    if facts.waiting is not None:
        return f", and {facts.waiting.told('envelope')} waited for a worker of {facts.role.service}"
    if facts.lacking is None:
        return ""
    return f", and lacks {facts.lacking.told('envelope')}, the oldest since {moment(facts.lacking.since)}"


def _proof(facts: RoleFacts, since: datetime | None, until: datetime | None = None) -> Proof:
    missing = facts.lacking or facts.waiting
    return Proof(
        other_id=facts.oldest,
        state=facts.role.state,
        since=since,
        until_at=until,
        seen_at=facts.role.seen_at,
        envelopes=None if missing is None else missing.number,
        place=facts.role.login,
        pause=facts.role.pause,
    )


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
