"""The back's verbs for runners of bots."""

from xbus.broker.answers import coded_answer
from xbus.broker.back.bots import Bots
from xbus.broker.journal.writes import RunFailure
from xbus.broker.sessions import Sessions
from xbus.errors import Refused
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import ClaimedBotRun, RunEnded, RunsHeld


class BotVerbs:
    """One method per verb, named as the verb. None of them needs a registration.

    Args:
        bots: carry the calls out.
        sessions: the roles'.
    """

    def __init__(self, bots: Bots, sessions: Sessions) -> None:
        self._bots = bots
        self._sessions = sessions

    @verb("xbus.claim_run")
    @coded_answer
    async def claim_run(self, token: str, program: str, options: Value) -> ClaimedBotRun:
        wait = options.get("wait", 0) if isinstance(options, dict) else None
        # No number is at least 0 that is none (NaN): it would be waited for ever.
        if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
            raise Refused("the options of a claim make no sense", "give a map with wait, in seconds", code=WRONG)
        return await self._bots.claim(self._sessions.owner(token), program, wait)

    @verb("xbus.renew_runs")
    @coded_answer
    async def renew_runs(self, token: str, program: str, runs: list[Value]) -> RunsHeld:
        known = [run for run in runs if isinstance(run, int) and 0 < run <= MOST_RUN]
        if len(known) != len(runs) or len(runs) > MOST_RENEWED:
            step = f"give up to {MOST_RENEWED} numbers of claimed runs"
            raise Refused("there are no such numbers of runs", step, code=WRONG)
        return {"runs": [*await self._bots.renew(self._sessions.owner(token), program, known)]}

    @verb("xbus.end_run")
    @coded_answer
    async def end_run(self, token: str, program: str, run: int, ticket: str, result: Value) -> RunEnded:
        if not isinstance(result, dict):
            raise Refused("the result of a run makes no sense", "give a map, see docs/wire.md", code=WRONG)
        if not 0 < run <= MOST_RUN:
            raise Refused("there are no such numbers of runs", "give that of the claimed run", code=WRONG)
        code, error, said = (str(result.get(key) or "") for key in ("code", "error", "log"))
        failure = RunFailure(code, error) if code else None
        owner = self._sessions.owner(token)
        return {"accepted": await self._bots.end(owner, program, run, ticket, failure, said)}


WRONG = "wrong_arguments"

MOST_RENEWED = 1000
"""Runs whose leases one call extends. More would be a long statement."""

MOST_RUN = 2**63 - 1
"""The greatest number that the journal's column holds: it would fail for greater ones."""
