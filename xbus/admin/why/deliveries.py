"""Explains why a role has got an envelope, has not got it yet, or never gets it; pure.

The journal comes first: it is what counts. Only of an envelope that would arrive by itself the memory of the back says
what keeps it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from shlex import quote
from typing import TypeAlias
from uuid import UUID

from xbus.admin.why.findings import Code, Finding, Proof, counted, explain_obstacle, gone, moment, unaware
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY
from xbus.broker.journal.log.event_states import DONE, DROPPED, OWED, REROUTED, RETRIED
from xbus.broker.journal.operations.why.deliveries import MOST_AHEAD, DeliveryFacts, KeyedEnvelope, NotOwed
from xbus.broker.journal.writes import PauseEntry, longest
from xbus.rpc.messages.insight import CallInHand, Insight, RoleInsight
from xbus.states import ConsumerState, DeliveryState

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
    """Explain an envelope at one consumer role."""
    return _EXPLAINED[facts.progress.state](facts, around)


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


def _owed(facts: DeliveryFacts, around: Surroundings) -> Finding:
    return _first(facts, around, _configured, _out_of_reach, _settled, _in_flight, _obstructed, _in_turn)


def _retried(facts: DeliveryFacts, around: Surroundings) -> Finding:
    return _first(facts, around, _configured, _out_of_reach, _in_flight, _behind_key, _obstructed, _due)


def _waiting(facts: DeliveryFacts, around: Surroundings) -> Finding:
    steps = (_configured, _out_of_reach, _in_flight, _without_worker, _behind_key, _obstructed, _in_turn)
    return _first(facts, around, *steps)


def _held(facts: DeliveryFacts, around: Surroundings) -> Finding:
    return _first(facts, around, _configured, _out_of_reach, _in_flight, _behind_key, _obstructed, _in_turn)


Step: TypeAlias = Callable[[DeliveryFacts, Surroundings], Finding | None]
"""A reason that is looked for; None where it is not the one."""


def _first(facts: DeliveryFacts, around: Surroundings, *steps: Step) -> Finding:
    """Give the first reason that is found; the last step always finds one."""
    found = (step(facts, around) for step in steps)
    return next(finding for finding in found if finding is not None)


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


_EXPLAINED: Mapping[str, Callable[[DeliveryFacts, Surroundings], Finding]] = {
    DONE: _delivered,
    RETRIED: _resent,
    DROPPED: _dropped,
    REROUTED: _rerouted,
    OWED: _owed,
    DeliveryState.PARKED.value: _parked,
    DeliveryState.RETRY.value: _retried,
    DeliveryState.WAITING.value: _waiting,
    DeliveryState.HELD.value: _held,
}
"""The explanation of each state of a delivery."""
