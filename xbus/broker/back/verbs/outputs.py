"""The back's verbs for bulk workers, which make outputs by themselves and report their progress."""

from xbus.broker.answers import coded_answer
from xbus.broker.back.bulk import OutputReports
from xbus.broker.sessions import Sessions
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.messages import OutputAccepted, OutputWanted


class OutputVerbs:
    """One method per verb, named as the verb. None of them needs a registration: after a restart of the broker, or with
    a new session, a worker goes on as before.

    Args:
        reports: what carries the calls out.
        sessions: the roles'.
    """

    def __init__(self, reports: OutputReports, sessions: Sessions) -> None:
        self._reports = reports
        self._sessions = sessions

    @verb("xbus.renew_output")
    @coded_answer
    def renew_output(self, token: str, attempt_id: str, progress: Value) -> OutputWanted:
        return {"wanted": self._reports.renew(self._sessions.owner(token), attempt_id, progress)}

    @verb("xbus.output_ready")
    @coded_answer
    async def output_ready(self, token: str, attempt_id: str, told: Value) -> OutputAccepted:
        return {"accepted": await self._reports.ready(self._sessions.owner(token), attempt_id, told)}

    @verb("xbus.output_failed")
    @coded_answer
    async def output_failed(self, token: str, attempt_id: str, told: Value) -> OutputAccepted:
        return {"accepted": await self._reports.failed(self._sessions.owner(token), attempt_id, told)}
