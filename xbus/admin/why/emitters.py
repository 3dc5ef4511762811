"""Explains an emitter, and a key that it never used; pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from shlex import quote

from xbus.admin.why.findings import Code, Finding, Proof, by_urgency, counted, moment
from xbus.broker.journal.operations.why.emitters import MOST_LOOKED_AT, EmitterFacts
from xbus.broker.journal.writes import PauseKind
from xbus.rpc.messages import HealthProblem, HealthReport
from xbus.rpc.messages.insight import SlowedEmitter

CONCERNS_EMITTERS = frozenset(
    {"journal_unavailable", "journal_unreadable", "journal_full", "descriptors_short", "drill"}
)
"""The codes of problems in health by which the front takes nothing, or not all."""


def explain_unknown_emitter(login: str) -> Finding:
    """Explain that no emitter has a login."""
    return Finding(Code.UNKNOWN_EMITTER, f'no emitter has or had the login "{login}"', "xbus export shows the emitters")


def explain_unknown_key(login: str, key: str) -> Finding:
    """Explain that an emitter has sent nothing under a key."""
    cause = (
        f"no envelope of {login} that reached the bus has the key {key!r}: it was never sent, or under another key, or "
        "the bus refused its first call"
    )
    next_step = f"see the emitter's log and xbus outbox status; xbus why --emitter {quote(login)} says what it may send"
    return Finding(Code.UNKNOWN_KEY, cause, next_step, proof=Proof(place=login))


def explain_slowed(login: str, slowed: SlowedEmitter | None) -> list[Finding]:
    """Explain that an emitter is held by its limits; nothing where it is not."""
    if slowed is None:
        return []
    since, at = datetime.fromisoformat(slowed["since"]), datetime.fromisoformat(slowed["at"])
    cause = (
        f"{login} is held by its limits: {slowed['cause']}; since {moment(since)} the front has told "
        f"{counted(slowed['calls'], 'call')} to slow down, the last one at {moment(at)}"
    )
    next_step = "xbus export shows its limits, and those of its profile; xbus edit changes them"
    return [Finding(Code.SLOW_DOWN, cause, next_step, proof=Proof(since=since, verb=slowed["verb"], place=login))]


def explain_emitter(facts: EmitterFacts, front: HealthReport | None, slowed: SlowedEmitter | None) -> list[Finding]:
    """Explain an emitter; the first finding is the answer.

    Args:
        front: the health of the front; None if it can't be reached.
        slowed: how the front slows it down; None if it does not.
    """
    obstacles = [*_obstacles(facts), *_front(facts, front), *explain_slowed(facts.login, slowed)]
    return [*by_urgency(obstacles), _work(facts)]


def _obstacles(facts: EmitterFacts) -> Iterator[Finding]:
    login = facts.login
    if facts.removed_at is not None:
        cause = f"{login} was removed from the bus at {moment(facts.removed_at)}, and can't log in"
        yield Finding(
            Code.EMITTER_REMOVED,
            cause,
            "xbus export shows the emitters",
            proof=Proof(since=facts.removed_at, place=login),
        )
    elif not facts.has_password:
        cause = f"{login} has no password, so it can't log in"
        yield Finding(Code.EMITTER_LOCKED, cause, f"xbus password emitter {quote(login)}", proof=Proof(place=login))
    for pause in facts.pauses:
        of_emitter = pause.kind is PauseKind.EMITTER
        code = Code.EMITTER_PAUSED if of_emitter else Code.TYPE_PAUSED
        what = "it begins no envelope" if of_emitter else f"{login} begins no event of that type"
        proof = Proof(since=pause.since, until_at=pause.until, place=login, pause=pause)
        yield Finding(code, f"the {pause.told}, so {what}", pause.resume_command, proof=proof)


def _front(facts: EmitterFacts, front: HealthReport | None) -> Iterator[Finding]:
    if front is None:
        cause = "the front can't be reached, so nothing is taken from emitters"
        next_step = "xbus health, then start_xbusbroker if it does not run"
        yield Finding(Code.FRONT_UNREACHABLE, cause, next_step, proof=Proof(place=facts.login))
        return
    problems: Sequence[HealthProblem] = [each for each in front["problems"] if each["code"] in CONCERNS_EMITTERS]
    for problem in problems:
        cause = f"the front has the problem {problem['code']}: {problem['cause']}"
        yield Finding(Code.FRONT_TROUBLED, cause, problem["next_step"] or "xbus health", proof=Proof(place=facts.login))


def _work(facts: EmitterFacts) -> Finding:
    login, newest = facts.login, facts.newest
    newest_at = None if newest is None else newest.opened_at
    proof = Proof(
        envelope_id=None if newest is None else newest.id,
        other_id=facts.oldest_open,
        state=None if newest is None else newest.state.value,
        since=facts.oldest_open_at if facts.open else newest_at,
        envelopes=facts.open,
        place=login,
    )
    sessions = f"and has {counted(facts.sessions, 'session')}"
    if facts.open:
        cause = (
            f"{login} has {counted(facts.open, 'envelope')} open, the oldest since {moment(facts.oldest_open_at)}, "
            f"{sessions}"
        )
        return Finding(Code.EMITTER_SENDING, cause, f"xbus why {facts.oldest_open}", proof=proof)
    last = f"none of the newest {MOST_LOOKED_AT:,} envelopes is its own"
    if newest is not None:
        last = f"its newest envelope is of {moment(newest.opened_at)} and {newest.state}"
    types = ", ".join(facts.types) or "nothing"
    cause = f"{login} has no envelope open, {sessions}; {last}; it may send {types}"
    return Finding(Code.EMITTER_QUIET, cause, f"xbus envelope list --emitter {quote(login)}", proof=proof)
