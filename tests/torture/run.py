"""A whole run: everything is started, struck, drained and ended, and then judged."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import click

from tests.torture import bus
from tests.torture.arena import Arena
from tests.torture.checker import Verdict, check, refusal_is_explained
from tests.torture.database import database
from tests.torture.drain import Lacking, drain
from tests.torture.examining import Examiner
from tests.torture.faults import Targets, chosen, plan
from tests.torture.history import TAKEOVER, Commit, History, Log, lines, read_commits, read_faults, read_sent
from tests.torture.settings import Settings
from tests.torture.strikes import Striker
from tests.torture.why import Asker

FAULTS_FILE = "faults.jsonl"
RECEIVED_FILE = "received.json"
MOST_TOLD = 20
"""How many violations of a kind are told."""

TOLD_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        verdict: of the checker.
        problems: what else went wrong.
        peak_rss_mib: the most memory that the broker took.
        struck: how often each kind of fault struck.
    """

    verdict: Verdict
    problems: tuple[str, ...]
    peak_rss_mib: float
    struck: Mapping[str, int]

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept."""
        return not self.verdict.violations and not self.problems

    def line(self, settings: Settings) -> str:
        """The outcome as a line of JSON."""
        verdict = self.verdict
        told = {
            "cycles": settings.cycles,
            "seed": settings.seed,
            "database": settings.database,
            "acknowledged": verdict.acknowledged,
            "delivered": verdict.delivered,
            "gone_with_database": verdict.gone_with_database,
            "lost": verdict.count("lost"),
            "invented": verdict.count("invented"),
            "torn": verdict.count("torn"),
            "reordered": verdict.count("reordered"),
            "duplicated": verdict.duplicated,
            "duplicates_allowed": verdict.duplicates_allowed,
            "peak_rss_mib": round(self.peak_rss_mib, 1),
        }
        return json.dumps(told)

    def strikes(self) -> str:
        """How often each kind of fault struck, as a sentence."""
        return "struck: " + (", ".join(f"{kind} {times}" for kind, times in sorted(self.struck.items())) or "nothing")

    def complaints(self) -> list[str]:
        """What was violated, in sentences."""
        told: Counter[str] = Counter()
        sentences = []
        for violation in self.verdict.violations:
            told[violation.kind] += 1
            if told[violation.kind] <= MOST_TOLD:
                sentences.append(f"{violation.kind}: {violation.what}")
        more = [f"{kind}: and {n - MOST_TOLD} more" for kind, n in told.items() if n > MOST_TOLD]
        return [*sentences, *more, *(f"problem: {problem}" for problem in self.problems)]


async def torture(settings: Settings, folder: Path) -> Outcome:
    """Run and judge.

    Args:
        folder: for all files; exists, and is empty.

    Raises:
        ValueError: there is no such fault.
        NotFound: there is no PostgreSQL on this machine.
    """
    async with database(settings.database, folder) as journal:
        bus.set_up(journal.own_url)
        log = Log(folder / FAULTS_FILE)
        arena = Arena(folder, journal, settings.seed, log)
        examiner = Examiner(journal.own_url, folder)
        striker = Striker(arena, journal, log, examiner)
        kinds = chosen(settings.faults, striker.targets)
        direct = {
            name: {role: path for role, path in ways.items() if role not in arena.chained}
            for name, ways in arena.routes.items()
        }
        asker = Asker(journal.own_url, arena.config_path, direct, settings.seed)
        async with arena.open():
            await _strike(settings, striker, {kind: striker.targets[kind] for kind in kinds}, asker, examiner)
            await arena.end_emitters()
            _tell("all emitters have ended, draining")
            left = await drain(Lacking(journal.own_url, arena.routes, arena.chained, _logs(arena, arena.consumers)))
            if left:
                _tell(f"{left} envelopes are still to come, giving up")
            await asker.ask_at_the_end(
                {role: {done.envelope_id for done in of} for role, of in _commits(arena).items()}
            )
            await arena.end_others()
            await examiner.examine_at_rest("at the end")
        for reign in arena.brokers.reigns[1:]:
            log.write(kind=TAKEOVER, target=TAKEOVER, since=reign.since, until=reign.until)
        made = bus.Made(journal.own_url).look()
        history = _history(arena, journal.own_url, made)
    peak = max(broker.peak_rss_mib for broker in arena.brokers)
    problems = (
        *_made_twice(made),
        *arena.problems,
        *asker.problems,
        *examiner.problems,
        *_refusals(arena, history),
        *_memory(peak, settings.peak_rss_mib),
    )
    _tell(f"examined the journal {examiner.examined} times")
    return Outcome(check(history), problems, peak, striker.struck)


async def _strike(settings: Settings, striker: Striker, targets: Targets, asker: Asker, examiner: Examiner) -> None:
    told = time.monotonic()
    for number, cycle in enumerate(plan(settings.seed, settings.cycles, targets), 1):
        examiner.begin(number)
        await striker.carry_out(cycle)
        if examiner.is_due:
            await examiner.examine_at_rest("behind it")
        await asker.ask()
        if time.monotonic() > told + TOLD_EVERY_SECONDS:
            told = time.monotonic()
            _tell(f"cycle {number} of {settings.cycles}")


def _history(arena: Arena, url: str, made: bus.Made) -> History:
    """What all have written down."""
    sent = {}
    for path in _logs(arena, arena.emitters).values():
        sent.update(read_sent(lines(path)))
    received = bus.read_received(url)
    kept = {envelope_id: asdict(envelope) for envelope_id, envelope in received.items()}
    (arena.folder / RECEIVED_FILE).write_text(json.dumps(kept))
    return History(
        routes=arena.routes,
        ordered=bus.ordered(bus.read_bus()),
        sent=sent,
        received=received,
        rows=bus.read_rows(url),
        commits={
            role: _of_sent(done, made) if role in arena.chained else done for role, done in _commits(arena).items()
        },
        chained=arena.chained,
        faults=read_faults(lines(arena.folder / FAULTS_FILE)),
    )


def _commits(arena: Arena) -> dict[str, list[Commit]]:
    """The commits of each role, in order, whichever of its programs made them."""
    commits: dict[str, list[Commit]] = {}
    for program, path in _logs(arena, arena.consumers).items():
        commits.setdefault(bus.role_of(program), []).extend(read_commits(lines(path), partial(arena.reign_at, program)))
    return {role: sorted(of_role, key=lambda commit: commit.at) for role, of_role in commits.items()}


def _of_sent(commits: Sequence[Commit], made: bus.Made) -> list[Commit]:
    """Commits of what nodes made, as commits of what was sent."""
    sources = bus.sources(bus.read_bus())
    return [
        replace(
            commit,
            envelope_id=made.origin(commit.envelope_id),
            events=tuple(replace(event, type_name=sources[event.type_name]) for event in commit.events),
        )
        for commit in commits
    ]


def _made_twice(made: bus.Made) -> Iterator[str]:
    for (node, of_envelope), times in made.keys.items():
        if times > 1:
            yield f"the node {node} made {times} envelopes of {of_envelope}"


def _logs(arena: Arena, logins: Iterable[str]) -> dict[str, Path]:
    return {login: arena.log_of(login) for login in logins}


def _refusals(arena: Arena, history: History) -> Iterator[str]:
    """Nothing that the emitters do is wrong, so nothing may be refused but the rest of what a database has lost."""
    for login, path in _logs(arena, arena.emitters).items():
        for line in lines(path):
            if line["what"] == "refused" and not refusal_is_explained(history, line["at"]):
                yield f"{login} was refused {line['ref']} with {line['code']}: {line['cause']}"


def _memory(peak_mib: float, most_mib: float) -> Iterator[str]:
    if peak_mib > most_mib:
        yield f"the broker took {peak_mib:.0f} MiB, more than {most_mib:.0f}"


def _tell(what: str) -> None:
    click.echo(what, err=True)
