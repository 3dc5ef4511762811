"""Lists what needs a decision: problems of the broker, what is parked, failures, pauses, envelopes left open."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from xbus.broker.journal.samples.attention import MOST_READ, AttentionGroup
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.monitor.live.sampler import BusNow
from xbus.monitor.rendering import link
from xbus.rpc.messages import HealthProblem
from xbus.states import TrackingState

SHOWN_ELSEWHERE = frozenset({"parked"})
"""Codes of health problems that the list tells in more detail by itself."""

_ABOUT_ROLES = frozenset({"consumer_absent", "owed_too_long", "recipient_silent", "role_behind"})
_ABOUT_FAILURES = frozenset({"role_in_trouble"})


@dataclass(frozen=True, slots=True)
class NeededDecision:
    """A thing that a person should look at.

    Args:
        tone: ``bad`` or ``busy``.
        title: the thing, with its number.
        code: to look up; empty for none.
        cause: a sentence about it.
        next_step: what helps.
        address: the page that shows it; None for none.
        since: when it began; None if nobody knows.
    """

    tone: str
    title: str
    code: str
    cause: str
    next_step: str
    address: str | None
    since: datetime | None


def decisions_of(now: BusNow) -> list[NeededDecision]:
    """List what needs a decision: the worst first."""
    attention = now.attention
    return [
        *_silent(now.health.silent),
        *(_problem(problem) for problem in now.health.problems if problem["code"] not in SHOWN_ELSEWHERE),
        *(_parked(group, "envelope") for group in attention.parked),
        *(_parked(group, "item") for group in attention.parked_items),
        *_beyond("parked work", [*attention.parked, *attention.parked_items], link("/parked")),
        *(_failures(group) for group in attention.failures),
        *_beyond("failures", attention.failures, link("/failures", state=TrackingState.UNPROCESSED.value)),
        *(_left_open(login, stalled.told("envelope"), stalled.since) for login, stalled in attention.open),
        *(
            NeededDecision(
                "busy",
                f"{pause.kind.told.capitalize()} {pause.name} is paused",
                "paused",
                f"{pause.paused_by}: {pause.reason}",
                "resume it when the reason is gone"
                if pause.until is None
                else f"it ends at {pause.until:%Y-%m-%d %H:%MZ}",
                _address_of_paused(pause, {reader.name for reader in now.readers}),
                pause.since,
            )
            for pause in attention.pauses
        ),
    ]


def _silent(sides: Sequence[str]) -> Iterator[NeededDecision]:
    taken = {"front": "nothing is taken from emitters", "back": "nothing is delivered"}
    for side in sides:
        yield NeededDecision(
            "bad",
            f"The {side} does not answer",
            "unreachable",
            f"the {side} of the broker can't be reached, so {taken[side]}",
            "see whether it runs, and what its log says; start_xbusbroker starts it, and it goes on where it stopped",
            None,
            None,
        )


def _problem(problem: HealthProblem) -> NeededDecision:
    about, since = problem.get("about", ""), problem["since"]
    address = None
    if about and problem["code"] in _ABOUT_ROLES:
        address = _address_of("role", about)
    elif about and problem["code"] in _ABOUT_FAILURES:
        address = link("/failures", role=about)
    return NeededDecision(
        "bad",
        problem["code"].replace("_", " ").capitalize(),
        problem["code"],
        problem["cause"],
        problem["next_step"],
        address,
        None if since is None else datetime.fromisoformat(since),
    )


def _parked(group: AttentionGroup, what: str) -> NeededDecision:
    return NeededDecision(
        "bad",
        f"{_number(group, what)} parked for {group.role}",
        group.code,
        f"parked with the code {group.code}",
        "see why, then resume, correct or drop",
        link("/parked", role=group.role, code=group.code),
        group.since,
    )


def _failures(group: AttentionGroup) -> NeededDecision:
    at = f" at {group.role}" if group.role is not None else ""
    return NeededDecision(
        "busy",
        f"{_number(group, 'failure')}{at} that nobody has looked at",
        group.code,
        f"calls failed with {group.code}",
        "look at one, and say how far you are with it",
        link("/failures", state=TrackingState.UNPROCESSED.value, role=group.role, code=group.code),
        group.since,
    )


def _beyond(what: str, groups: Sequence[AttentionGroup], address: str) -> Iterator[NeededDecision]:
    """Tell once where more exists than was read, as groups of it may be missing."""
    if any(group.at_least for group in groups):
        cause = f"{MOST_READ:,} of a kind were looked at, and more exist"
        next_step = "the list has all of them"
        yield NeededDecision(
            "busy", f"More {what} than is counted here", "not_counted", cause, next_step, address, None
        )


def _left_open(login: str, told: str, since: datetime) -> NeededDecision:
    return NeededDecision(
        "busy",
        f"{told} of {login} open for long",
        "open",
        "an emitter began them and has neither ended nor cancelled them",
        "see whether the emitter runs; one that is gone for good leaves them to be cancelled",
        link("/envelopes", state="open", emitter=login),
        since,
    )


def _number(group: AttentionGroup, what: str) -> str:
    return f"{'at least ' if group.at_least else ''}{group.number:,} {what}{'s' * (group.number != 1)}"


def _address_of(kind: str, name: str) -> str:
    return f"/{'recipients' if kind == 'role' else f'{kind}s'}/{quote(name, safe='')}"


def _address_of_paused(pause: PauseEntry, readers: Collection[str]) -> str:
    is_reader = pause.kind is PauseKind.SERVICE and pause.name in readers
    return _address_of("reader" if is_reader else pause.kind.value, pause.name)
