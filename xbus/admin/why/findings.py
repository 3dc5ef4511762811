"""The findings of ``xbus why``: a closed set of codes, each with its proof; and what keeps a role from all. Pure."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from xbus.broker.journal.log import deliveries
from xbus.broker.journal.operations.failures import FailureSummary
from xbus.broker.journal.operations.why.roles import RoleSituation
from xbus.broker.journal.writes import PauseEntry
from xbus.rpc.messages import RoleInsight
from xbus.states import ConsumerState


class Code(StrEnum):
    """All answers that ``xbus why`` gives. ``docs/why.md`` explains each; they never change their meaning."""

    # An envelope that no role is to get, or all have got.
    UNKNOWN_ID = "unknown_id"
    OPEN = "open"
    CANCELLED = "cancelled"
    PRUNED = "pruned"
    ARCHIVED = "archived"
    NO_CONSUMER = "no_consumer"
    REFUSED = "refused"
    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_EVENT = "unknown_event"
    UNKNOWN_ITEM = "unknown_item"

    # An envelope at a role that has got it, or goes without it.
    DELIVERED = "delivered"
    ITEMS_PARKED = "items_parked"
    RESENT = "resent"
    DROPPED = "dropped"
    REROUTED = "rerouted"
    NOT_OWED = "not_owed"

    # An envelope that a person decides about.
    PARKED = "parked"

    # An envelope that arrives by itself, as soon as something happens.
    UNDER_WAY = "under_way"
    IN_LINE = "in_line"
    RETRY_DUE = "retry_due"
    BEHIND_KEY = "behind_key"
    KEY_IN_HAND = "key_in_hand"
    BEHIND_ROW = "behind_row"
    SLOTS_TAKEN = "slots_taken"
    HELD_UP = "held_up"
    ARCHIVE_AWAITED = "archive_awaited"
    WORKER_GRACE = "worker_grace"
    WORKER_BUSY = "worker_busy"
    WORKER_ABSENT = deliveries.WORKER_ABSENT
    WORKER_PAUSED = "worker_paused"
    WORKER_TRIPPED = "worker_tripped"
    OUTPUT_NOT_READY = deliveries.OUTPUT_NOT_READY
    UNWRITTEN = "unwritten"
    BACK_UNREACHABLE = "back_unreachable"
    BACK_UNAWARE = "back_unaware"

    # A role.
    UNKNOWN_ROLE = "unknown_role"
    NO_ROLE = "no_role"
    ROLE_REMOVED = "role_removed"
    ROLE_DETACHED = "role_detached"
    ROLE_PAUSED = "role_paused"
    ROLE_ABSENT = "role_absent"
    ROLE_TRIPPED = "role_tripped"
    ROLE_LEAVING = "role_leaving"
    ROLE_BEHIND = "role_behind"
    ROLE_WELL = "role_well"

    # A reader, or the subscription that stands on one.
    READER_DETACHED = "reader_detached"
    READER_PAUSED = "reader_paused"
    READER_ABSENT = "reader_absent"
    READER_BEHIND = "reader_behind"
    READER_WELL = "reader_well"
    SUBSCRIPTION_FAILING = "subscription_failing"
    SUBSCRIPTION_ENDED = "subscription_ended"
    BATCHES_PARKED = "batches_parked"

    # A bot, and the programs that run it.
    UNKNOWN_BOT = "unknown_bot"
    BOT_PAUSED = "bot_paused"
    BOT_SLOWED = "bot_slowed"
    BOT_RUNNING = "bot_running"
    BOT_RETRIES = "bot_retries"
    RUNNER_PAUSED = "runner_paused"
    RUNNER_ABSENT = "runner_absent"
    RUNNER_IDLE = "runner_idle"
    BOT_BEHIND = "bot_behind"
    BOT_FAILED = "bot_failed"
    BOT_IDLE = "bot_idle"

    # An item that a role gets otherwise, or not with its event.
    ITEM_PARKED = "item_parked"
    ITEM_RESUMED = "item_resumed"
    ITEM_DROPPED = "item_dropped"
    ITEM_CORRECTED = "item_corrected"

    # An emitter.
    UNKNOWN_EMITTER = "unknown_emitter"
    EMITTER_REMOVED = "emitter_removed"
    EMITTER_PAUSED = "emitter_paused"
    TYPE_PAUSED = "type_paused"
    SLOW_DOWN = "slow_down"
    EMITTER_LOCKED = "emitter_locked"
    FRONT_TROUBLED = "front_troubled"
    FRONT_UNREACHABLE = "front_unreachable"
    EMITTER_SENDING = "emitter_sending"
    EMITTER_QUIET = "emitter_quiet"


@dataclass(frozen=True, slots=True)
class Proof:
    """The figures, times and calls that show a finding; None for each that it does not need.

    Args:
        envelope_id: the envelope in question.
        other_id: another envelope that matters: the one that goes first, or by which this one was sent again.
        state: the state that the journal notes.
        since: since when it is so.
        until_at: when it ends, or is tried again.
        seen_at: when the broker last heard of the recipient.
        attempts: how often the envelope was handed over.
        envelopes: how many envelopes are ahead of it, or are concerned.
        items: how many items are concerned.
        service: the worker service that matters.
        verb: the last call about the envelope.
        place: the role, or the roles, at which it is or for which it waits.
        failure: the failed call.
        pause: the pause.
    """

    envelope_id: UUID | None = None
    other_id: UUID | None = None
    state: str | None = None
    since: datetime | None = None
    until_at: datetime | None = None
    seen_at: datetime | None = None
    attempts: int | None = None
    envelopes: int | None = None
    items: int | None = None
    service: str | None = None
    verb: str | None = None
    place: str | None = None
    failure: FailureSummary | None = None
    pause: PauseEntry | None = None


NOTHING = Proof()


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer.

    Args:
        code: its kind.
        cause: one sentence without a final full stop.
        next_step: the command that helps, or what to do; empty where nothing has to be done.
        role: the login of the consumer role that it is about; None where it is about no single one.
        proof: shows it.
    """

    code: Code
    cause: str
    next_step: str = ""
    role: str | None = None
    proof: Proof = NOTHING


URGENCY = (
    (Code.PARKED, Code.ITEM_PARKED, Code.ITEMS_PARKED, Code.NO_ROLE, Code.ROLE_REMOVED),
    (Code.BACK_UNREACHABLE, Code.FRONT_UNREACHABLE, Code.FRONT_TROUBLED, Code.ROLE_TRIPPED, Code.WORKER_TRIPPED),
    (Code.ROLE_ABSENT, Code.WORKER_ABSENT, Code.ROLE_PAUSED, Code.WORKER_PAUSED, Code.BEHIND_KEY, Code.RETRY_DUE),
)
"""The findings that a person reads first; those that end by themselves and those about what is over come behind."""

OVER = frozenset({Code.DELIVERED, Code.RESENT, Code.DROPPED, Code.REROUTED, Code.NOT_OWED, Code.ROLE_WELL})


def by_urgency(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: the first one is the answer, the others are beside it."""
    return sorted(findings, key=_rank)


def _rank(finding: Finding) -> int:
    if finding.code in OVER:
        return len(URGENCY) + 1
    return next((rank for rank, codes in enumerate(URGENCY) if finding.code in codes), len(URGENCY))


def moment(at: datetime | None) -> str:
    """Write a moment in a sentence."""
    return "an unknown moment" if at is None else f"{at:%Y-%m-%d %H:%M:%SZ}"


def explain_obstacle(role: RoleSituation, told: RoleInsight, now: datetime) -> Finding | None:
    """Explain why nothing begins with a role, as the back knows it; None if nothing keeps it."""
    login, state = role.login, told["state"]
    if state == ConsumerState.ABSENT:
        cause = f"no recipient of {login} is registered: it {gone(role)}"
        proof = Proof(since=role.absent_since, seen_at=role.seen_at, place=login)
        return Finding(Code.ROLE_ABSENT, cause, f"start the recipient of {login}", login, proof)
    if state == ConsumerState.TRIPPED:
        since, seconds = told["trouble_since"], told["probe_seconds"] or 0.0
        at = None if since is None else datetime.fromisoformat(since)
        cause = (
            f"one envelope after the other fails at {login} since {moment(at)}: the next probe is in {seconds:.0f} s"
        )
        proof = Proof(since=at, until_at=now + timedelta(seconds=seconds), place=login)
        return Finding(Code.ROLE_TRIPPED, cause, f"xbus failure list --role {shlex.quote(login)}", login, proof)
    if state == ConsumerState.LEAVING:
        cause = f"the recipient of {login} is leaving: it finishes its work and gets nothing more"
        return Finding(Code.ROLE_LEAVING, cause, f"start the recipient of {login} again", login, Proof(place=login))
    if state == ConsumerState.PAUSED:
        # The pause has just ended in the journal, and the back hears of it within a second or two.
        cause = f"{login} was paused until a moment ago"
        return Finding(Code.ROLE_PAUSED, cause, "ask again in a few seconds", login, Proof(place=login))
    return None


def unaware(login: str) -> tuple[str, str]:
    """Word that a back that answers does not know a role, and the next step."""
    cause = f"the back does not know {login} yet: it reads a changed configuration within seconds"
    return cause, "ask again; if this remains, see xbus health"


def gone(role: RoleSituation) -> str:
    """Word since when a role has no recipient, behind its name."""
    if role.absent_since is not None:
        return f"is absent since {moment(role.absent_since)}"
    # The journal may not know yet that it went.
    return "was never seen" if role.seen_at is None else f"was last seen at {moment(role.seen_at)}"
