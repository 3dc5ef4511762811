"""Explains a role as a whole: why it gets nothing, why it lags, or that it is well; pure."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote

from xbus.admin.why.deliveries import Surroundings
from xbus.admin.why.findings import Code, Finding, Proof, by_urgency, explain_obstacle, gone, moment, unaware
from xbus.broker.journal.operations.stalled import add_up
from xbus.broker.journal.operations.why.roles import RoleFacts


def explain_unknown_role(login: str) -> Finding:
    """Explain that no role has a login."""
    return Finding(Code.UNKNOWN_ROLE, f'no role has or had the login "{login}"', "xbus recipient list", login)


def explain_role(facts: RoleFacts, around: Surroundings, oldest: Finding | None = None) -> list[Finding]:
    """Explain a role; the first finding is the answer.

    Args:
        oldest: the finding of the oldest envelope that it lacks; None where it lacks none.
    """
    return by_urgency([_state(facts, around, oldest), *_parked(facts)])


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


def _parked(facts: RoleFacts) -> Iterator[Finding]:
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
