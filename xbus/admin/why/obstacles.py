"""Explains what keeps a role from all envelopes just now; pure."""

import shlex
from datetime import datetime, timedelta

from xbus.admin.why.findings import Code, Finding, Proof, moment
from xbus.broker.journal.operations.why.situations import RoleSituation
from xbus.rpc.messages.insight import RoleInsight
from xbus.states import ConsumerState


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
