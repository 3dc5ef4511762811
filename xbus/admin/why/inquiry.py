"""Carries a question out: it reads the facts, asks the broker where only its memory has the rest, and reads again.

Readers, bots and emitters are explained here, by pure functions.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from xbus.admin.address import Side, broker_address, call_broker
from xbus.admin.output import counted
from xbus.admin.why.deliveries import (
    Surroundings,
    explain_envelope,
    explain_refused,
    explain_role,
    explain_unknown,
    explain_unknown_role,
)
from xbus.admin.why.findings import Code, Finding, Proof, by_urgency, moment
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.bots import BotRunStatus
from xbus.broker.journal.operations.envelopes.details import DIGITS
from xbus.broker.journal.operations.why.envelopes import (
    AskedPart,
    EnvelopeFacts,
    KeyedEnvelope,
    find_keyed,
    find_subject,
    read_envelope_facts,
    read_keyed,
    read_oldest,
)
from xbus.broker.journal.operations.why.roles import (
    MOST_LOOKED_AT,
    MOST_RUNS,
    BotFacts,
    EmitterFacts,
    ReaderFacts,
    RoleFacts,
    find_emitter,
    list_bots_of,
    read_bot_facts,
    read_emitter_facts,
    read_logins,
    read_reader_facts,
    read_role_facts,
)
from xbus.broker.journal.readers.status import MOST_COUNTED_EVENTS, ReaderStatus, SubscriberStatus
from xbus.broker.journal.samples.sample import Delivered
from xbus.broker.journal.writes import PauseKind
from xbus.clock import Clock
from xbus.errors import EnvelopeCancelled, Failed, Refused
from xbus.ids import keyed_envelope_id
from xbus.rpc.codec import Value
from xbus.rpc.messages import (
    MOST_ROLES_TOLD,
    DeliveredSoFar,
    HealthProblem,
    HealthReport,
    Insight,
    RefusedCall,
    SlowedEmitter,
)
from xbus.rpc.shapes import AnswerReader
from xbus.states import BotRunState, EnvelopeState, RangeState

T = TypeVar("T")

ANSWER_SECONDS = 3.0
"""Seconds to wait for an answer. Fewer may take a busy broker for one that is away."""

_INSIGHT = AnswerReader("xbus.why", Insight)
_REFUSED = AnswerReader("xbus.refused", RefusedCall)
_SLOWED = AnswerReader("xbus.slowed", SlowedEmitter)
_DELIVERED = AnswerReader("xbus.delivered", DeliveredSoFar)
_HEALTH = AnswerReader("xbus.health", HealthReport)


class RunningBroker:
    """The broker of a configuration.

    Args:
        config_path: the configuration, which names its addresses.
        answer_seconds: how long to wait for an answer where something listens.
    """

    def __init__(self, config_path: Path | None, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._config_path = config_path
        self._answer_seconds = answer_seconds

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        """Ask the back for its memory; None if it can't be reached.

        Raises:
            Refused: it is older than this command (``unknown_method``).
        """
        told = None if envelope_id is None else str(envelope_id)
        return self._ask("back", _INSIGHT, [*role_ids], told, position)

    def delivered(self, role_ids: Collection[int]) -> Mapping[int, Delivered] | None:
        """Ask an up-to-date back how much each role has committed since it began; None without an answer."""
        found: dict[int, Delivered] = {}
        asked: list[Value] = [*role_ids]
        for first in range(0, len(asked), MOST_ROLES_TOLD):
            try:
                chunk = asked[first : first + MOST_ROLES_TOLD]
                answer = asyncio.run(self._call("back", "xbus.delivered", chunk))
            except Refused:
                return None
            if answer is None:
                return None
            roles = _DELIVERED.read(answer)["roles"]
            found |= {role["role"]: Delivered(role["envelopes"], role["items"]) for role in roles}
        return found

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        """Ask the front for the last call about an envelope that it refused; None also if it can't be reached."""
        return self._ask("front", _REFUSED, str(envelope_id))

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        """Ask the front how it slows an emitter down; None if it does not, or can't be reached."""
        return self._ask("front", _SLOWED, emitter_id)

    def health(self, side: Side) -> HealthReport | None:
        """Ask a side how it is; None if it can't be reached."""
        return self._ask(side, _HEALTH)

    async def health_of_both(self) -> tuple[HealthReport | None, HealthReport | None]:
        """Ask front and back at once for their health, without a waiting thread; None for one without an answer."""
        front, back = await asyncio.gather(self._health("front"), self._health("back"))
        return front, back

    async def _health(self, side: Side) -> HealthReport | None:
        answer = await self._call(side, "xbus.health")
        return None if answer is None else _HEALTH.read(answer)

    def _ask(self, side: Side, reader: AnswerReader[T], *args: Value) -> T | None:
        answer = asyncio.run(self._call(side, reader.verb, *args))
        return None if answer is None else reader.read(answer)

    async def _call(self, side: Side, verb: str, *args: Value) -> Value | None:
        try:
            return await call_broker(broker_address(side, None, self._config_path), self._answer_seconds, verb, *args)
        except Failed:
            return None


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


ALL = AskedPart()


class JournalAccess(Protocol):
    """Reads the journal, each time in a transaction of its own."""

    def __call__(self, read: Callable[[Connection], T], /) -> T:
        """Give what ``read`` returns."""


class BrokerAccess(Protocol):
    """The running broker."""

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        """Ask the back for its memory; None if it can't be reached."""

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        """Ask the front for the last call about an envelope that it refused; None also if it can't be reached."""

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        """Ask the front how it slows an emitter down; None if it does not, or can't be reached."""

    def health(self, side: Side) -> HealthReport | None:
        """Ask a side how it is; None if it can't be reached."""


class Inquiry:
    """Answers questions; the first finding is the answer, the others stand beside it.

    Args:
        journal: reads the journal.
        broker: the running broker.
        clock: tells the moment of the answer.
    """

    def __init__(self, journal: JournalAccess, broker: BrokerAccess, clock: Clock) -> None:
        self._read = journal
        self._broker = broker
        self._clock = clock

    def by_id(self, digits: str, part: AskedPart = ALL) -> list[Finding]:
        """Explain the envelope or event with an id, or the envelope whose id begins with some digits.

        Raises:
            Refused: several envelopes begin so (``ambiguous_id``).
        """
        found = self._read(lambda connection: find_subject(connection, digits))
        if found is None:
            asked = UUID(digits) if len(digits) == DIGITS else None
            return [*self._refused(asked), explain_unknown(digits, self._read(read_oldest))]
        envelope_id, event = found
        return self.envelope(envelope_id, part if event is None else AskedPart(part.role, event.number, part.item))

    def by_key(self, emitter: str, key: str, part: AskedPart = ALL) -> list[Finding]:
        """Explain the newest envelope to which an emitter gave a key."""
        emitter_id = self._read(lambda connection: find_emitter(connection, emitter))
        if emitter_id is None:
            return [explain_unknown_emitter(emitter)]
        envelope_id = self._read(lambda connection: find_keyed(connection, emitter_id, key))
        # The front notes calls that name a key under the id of its first try, however many were cancelled since.
        first_try = keyed_envelope_id(emitter_id, key)
        if envelope_id is None:
            slowed = explain_slowed(emitter, self._broker.slowed(emitter_id))
            return [*self._refused(first_try), *slowed, explain_unknown_key(emitter, key)]
        return self.envelope(envelope_id, part, first_try)

    def _refused(self, envelope_id: UUID | None, known: str = "") -> list[Finding]:
        """Explain that the front refused an envelope; nothing where it remembers nothing of that kind.

        Args:
            known: the code of a refusal that needs no explanation; empty for none.
        """
        call = None if envelope_id is None else self._broker.refused(envelope_id)
        if call is None or envelope_id is None or call["code"] == known:
            return []
        return [explain_refused(call, envelope_id)]

    def envelope(self, envelope_id: UUID, part: AskedPart = ALL, first_try: UUID | None = None) -> list[Finding]:
        """Explain an envelope, or a part of it.

        Args:
            first_try: the id under which the front notes refused calls by its key; None where no key is asked about.
        """
        facts = self._read(partial(read_envelope_facts, envelope_id=envelope_id, part=part))
        around = Surroundings(None, self._clock.now())
        if facts is not None and facts.asks_the_back:
            insight = self._ask(facts)
            # The journal is read last: it has the end of a delivery that the back still knew as going on.
            facts = self._read(partial(read_envelope_facts, envelope_id=envelope_id, part=part))
            around = Surroundings(insight, self._clock.now(), self._keyed(facts, insight), self._logins(insight))
        if facts is None:
            return [explain_unknown(str(envelope_id), self._read(read_oldest))]
        findings = explain_envelope(facts, around)
        summary = facts.detail.summary
        if summary.position is not None:
            return findings
        if summary.state is EnvelopeState.OPEN:
            findings = [*self._slowed(summary.emitter), *findings]
        ids = dict.fromkeys([envelope_id, first_try])
        # That it was cancelled says already why later calls about it were refused.
        known = EnvelopeCancelled.default_code if summary.state is EnvelopeState.CANCELLED else ""
        return [*findings, *(finding for each in ids for finding in self._refused(each, known))]

    def _slowed(self, login: str) -> list[Finding]:
        """Explain that an emitter is held by its limits; nothing where it is not."""
        emitter_id = self._read(lambda connection: find_emitter(connection, login))
        return [] if emitter_id is None else explain_slowed(login, self._broker.slowed(emitter_id))

    def _ask(self, facts: EnvelopeFacts) -> Insight | None:
        consumers = {delivery.role.id for delivery in facts.deliveries if delivery.role is not None}
        workers = {worker.id for delivery in facts.deliveries for worker in delivery.workers}
        summary = facts.detail.summary
        return self._broker.insight(sorted(consumers | workers), summary.id, summary.position)

    def _keyed(self, facts: EnvelopeFacts | None, insight: Insight | None) -> dict[int, KeyedEnvelope]:
        ordered = {
            delivery.role.id
            for delivery in (() if facts is None else facts.deliveries)
            if delivery.role is not None and delivery.role.ordered
        }
        roles = [] if insight is None else insight["roles"]
        positions = {position for role in roles if role["role"] in ordered for position in role["in_flight"]}
        return self._read(partial(read_keyed, positions=positions)) if positions else {}

    def _logins(self, insight: Insight | None) -> dict[int, str]:
        """Read the logins of the roles that the back names by their ids."""
        if insight is None:
            return {}
        beside = {role_id for role in insight["roles"] for role_id in role["held_up_by"]}
        named = beside | {call["role"] for call in insight["in_hand"]}
        return self._read(partial(read_logins, role_ids=named)) if named else {}

    def role(self, login: str) -> list[Finding]:
        """Explain a role, a reader or a subscription. The role of a reader gives that reader, and a runner its bots."""
        bots = self._read(partial(list_bots_of, login=login))
        if bots is not None:
            return explain_runner(login, [finding for name in bots for finding in self.bot(name)])
        facts = self._read(partial(read_role_facts, login=login))
        reader = login if facts is None or facts.role.removed_at is not None else facts.role.service
        of_reader = self._read(partial(read_reader_facts, name=reader))
        if of_reader is not None:
            return explain_reader(of_reader)
        if facts is None:
            return [explain_unknown_role(login)]
        around = Surroundings(self._broker.insight([facts.role.id], None, None), self._clock.now())
        return explain_role(facts, around, self._oldest(facts))

    def _oldest(self, facts: RoleFacts) -> Finding | None:
        """Explain the oldest envelope that a role lacks."""
        if facts.oldest is None:
            return None
        return self.envelope(facts.oldest, AskedPart(facts.role.login))[0]

    def bot(self, name: str) -> list[Finding]:
        """Explain a bot."""
        facts = self._read(partial(read_bot_facts, name=name, now=self._clock.now()))
        return [explain_unknown_bot(name)] if facts is None else explain_bot(facts, self._clock.now())

    def emitter(self, login: str) -> list[Finding]:
        """Explain an emitter."""
        facts = self._read(partial(read_emitter_facts, login=login, now=self._clock.now()))
        if facts is None:
            return [explain_unknown_emitter(login)]
        return explain_emitter(facts, self._broker.health("front"), self._broker.slowed(facts.id))
