"""Explains a bot: why nothing of it runs now, or that a run is under way; pure."""

from collections.abc import Callable, Sequence
from datetime import datetime
from shlex import quote
from typing import TypeAlias

from xbus.admin.why.findings import Code, Finding, Proof, counted, moment
from xbus.broker.journal.operations.bots import BotRunStatus
from xbus.broker.journal.operations.why.bots import MOST_RUNS, BotFacts
from xbus.broker.journal.readers.status import MOST_COUNTED_EVENTS
from xbus.states import BotRunState, RangeState

Step: TypeAlias = Callable[[BotFacts, datetime], Finding | None]
"""A reason that is looked for; None where it is not the one."""


def explain_bot(facts: BotFacts, now: datetime) -> list[Finding]:
    """Explain a bot: what keeps it from running, and else what comes next."""
    steps: tuple[Step, ...] = (_paused, _slowed, _running, _due, _behind, _failed)
    found = (step(facts, now) for step in steps)
    return [next((each for each in found if each is not None), None) or _idle(facts)]


def explain_unknown_bot(name: str) -> Finding:
    """Explain that no bot in use has a name."""
    return Finding(Code.UNKNOWN_BOT, f"no bot in use is called {name!r}", "xbus bot list")


def explain_runner(login: str, bots: Sequence[Finding]) -> list[Finding]:
    """Explain a role whose programs run bots, by its bots, those first for which somebody has to do something."""
    if not bots:
        return [Finding(Code.RUNNER_IDLE, f"{login} runs bots, and no bot names its service", "xbus bot list")]
    return sorted(bots, key=lambda each: each.code in (Code.BOT_RUNNING, Code.BOT_IDLE))


def _paused(facts: BotFacts, now: datetime) -> Finding | None:
    pause = facts.status.pause
    if pause is None:
        return None
    proof = Proof(state=facts.status.state, since=pause.since, place=facts.status.name, pause=pause)
    return Finding(Code.BOT_PAUSED, f"the {pause.told}", pause.resume_command, proof=proof)


def _slowed(facts: BotFacts, now: datetime) -> Finding | None:
    it = facts.status
    if it.slowed_until is None or it.running or (facts.due and it.slowed_until <= now):
        return None
    last = f", the last with {it.last.code}: {it.last.error}" if it.last is not None and it.last.code else ""
    cause = (
        f"{counted(it.failures, 'attempt')} of {it.name} failed one after another{last}; it is tried once more at "
        f"{moment(it.slowed_until)}"
    )
    proof = Proof(state=it.state, until_at=it.slowed_until, attempts=it.failures, place=it.name)
    next_step = f"xbus bot log {quote(it.name)}, then xbus bot release {quote(it.name)} --reason …"
    return Finding(Code.BOT_SLOWED, cause, next_step, proof=proof)


def _running(facts: BotFacts, now: datetime) -> Finding | None:
    if not facts.running:
        return None
    it, oldest = facts.status, facts.running[-1]
    waiting = f", and {_number(facts.due)} wait" if facts.due else ""
    cause = f"{oldest.runner} has run {oldest.id} of {it.name} under way since {moment(oldest.started_at)}{waiting}"
    proof = Proof(state=it.state, since=oldest.started_at, attempts=oldest.attempts, place=oldest.runner)
    return Finding(Code.BOT_RUNNING, cause, f"xbus bot runs {quote(it.name)}", proof=proof)


def _due(facts: BotFacts, now: datetime) -> Finding | None:
    if not facts.due:
        return None
    it, oldest = facts.status, min(facts.due, key=lambda run: run.due_at)
    proof = Proof(state=it.state, since=oldest.due_at, attempts=oldest.attempts or None, place=it.name)
    if oldest.due_at > now:
        why = f"run {oldest.id} of {it.name} failed with {oldest.code}: {oldest.error}"
        cause = f"{why}; it is tried again at {moment(oldest.due_at)}"
        proof = Proof(state=it.state, until_at=oldest.due_at, attempts=oldest.attempts, place=it.name)
        return Finding(Code.BOT_RETRIES, cause, f"xbus bot log {quote(it.name)} --run {oldest.id}", proof=proof)
    waiting = f"{_number(facts.due)} of {it.name} wait since {moment(oldest.due_at)}"
    if not facts.runners:
        return Finding(Code.RUNNER_ABSENT, f"{waiting}, and no role runs bots", "xbus edit, and add one", proof=proof)
    if facts.paused is not None:
        return Finding(
            Code.RUNNER_PAUSED, f"{waiting}: the {facts.paused.told}", facts.paused.resume_command, proof=proof
        )
    runners = " or ".join(facts.runners)
    cause = f"{waiting}, and no program of {runners} has taken it: none is there, or all are at work"
    return Finding(Code.RUNNER_ABSENT, cause, "start xbus bot run", proof=proof)


def _behind(facts: BotFacts, now: datetime) -> Finding | None:
    """Look whether events wait of which no batch is at hand."""
    reader = facts.reader
    if reader is None or not reader.lag:
        return None
    number = counted(reader.lag, "event", at_least=reader.lag >= MOST_COUNTED_EVENTS)
    free = sum(each.range.state is RangeState.FREE for each in reader.ranges)
    if free:
        owned = f"nobody has {free} of its {counted(len(reader.ranges), 'range')}, so no broker is at work for it"
    else:
        owned = f"its {counted(len(reader.ranges), 'range')} are held by a broker, which has given no batch of it yet"
    cause = f"{number} from {reader.place} on wait for {facts.status.name} since {moment(reader.waits_since)}: {owned}"
    proof = Proof(state=facts.status.state, since=reader.waits_since, place=reader.entry.name)
    next_step = f"xbus reader show {quote(reader.entry.name)}, and xbus health"
    return Finding(Code.BOT_BEHIND, cause, next_step, proof=proof)


def _failed(facts: BotFacts, now: datetime) -> Finding | None:
    it, last = facts.status, facts.status.last
    if last is None or last.state is not BotRunState.FAILED:
        return None
    cause = (
        f"the last run of {it.name}, {last.id}, failed at {moment(last.ended_at)} after "
        f"{counted(last.attempts, 'attempt')} with {last.code}: {last.error}{_next(facts)}"
    )
    proof = Proof(state=it.state, since=last.ended_at, attempts=last.attempts, place=it.name)
    next_step = (
        f"xbus bot log {quote(it.name)} --run {last.id}, then xbus bot fire {quote(it.name)} --run {last.id} --reason …"
    )
    return Finding(Code.BOT_FAILED, cause, next_step, proof=proof)


def _idle(facts: BotFacts) -> Finding:
    it = facts.status
    cause = f"nothing of {it.name} is due{_next(facts)}"
    since = None if it.last is None else it.last.ended_at
    return Finding(Code.BOT_IDLE, cause, proof=Proof(state=it.state, since=since, until_at=it.next_slot, place=it.name))


def _next(facts: BotFacts) -> str:
    """Word what comes next, behind a sentence."""
    it = facts.status
    slot = [f"its next slot is {moment(it.next_slot)}"] if it.next_slot else []
    reads = [f"it waits for events of {', '.join(it.reads)}"] if it.reads else []
    return f"; {' and '.join([*slot, *reads]) or 'it runs only when a person fires it'}"


def _number(runs: Sequence[BotRunStatus]) -> str:
    return counted(len(runs), "run", at_least=len(runs) == MOST_RUNS)
