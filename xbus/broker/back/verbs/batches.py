"""The back's added verbs, for recipients of our own SDK: errors with a code, and a sign of life."""

from xbus.broker.answers import coded_answer
from xbus.broker.back.back import Back
from xbus.broker.back.verbs.recipients import is_ready, log_out
from xbus.broker.sessions import Sessions
from xbus.ids import token_hash
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.messages import BackLogin, Registered


class BackBatchVerbs:
    """One method per verb of the namespace ``xbus``, named as the verb.

    Args:
        back: carries the calls out.
        sessions: the roles'.
        session_seconds: part of the answer to a login.
        max_batch_bytes: part of the answer to a login.
        heartbeat_seconds: part of the answer to a login; 0 for no heartbeats.
    """

    def __init__(
        self, back: Back, sessions: Sessions, session_seconds: float, max_batch_bytes: int, heartbeat_seconds: float
    ) -> None:
        self._back = back
        self._sessions = sessions
        self._session_seconds = session_seconds
        self._max_batch_bytes = max_batch_bytes
        self._heartbeat_seconds = heartbeat_seconds

    @verb("xbus.login")
    @coded_answer
    async def login(self, login: str, password: str) -> BackLogin:
        token = await self._sessions.login(login, password)
        return {
            "token": token,
            "session_seconds": int(self._session_seconds),
            "max_batch_bytes": self._max_batch_bytes,
            "heartbeat": self._heartbeat_seconds,
        }

    @undoes("xbus.login")
    def undo_login(self, answer: BackLogin) -> None:
        self._sessions.take_back(answer["token"])

    @verb("xbus.logout")
    @coded_answer
    async def logout(self, token: str) -> bool:
        return await log_out(self._back, self._sessions, token)

    @verb("xbus.register_node")
    @coded_answer
    async def register_node(self, token: str, uri: str) -> bool:
        await self._back.register(self._sessions.owner(token), token_hash(token), uri)
        return True

    @verb("xbus.ready")
    @coded_answer
    def ready(self, token: str) -> bool:
        return is_ready(self._back, self._sessions, token)

    @verb("xbus.heartbeat")
    @coded_answer
    def heartbeat(self, token: str, work: Value = None) -> Registered:
        # First, as the session of one that was lost has ended.
        self._back.check_in_place(token_hash(token))
        return {"registered": self._back.heartbeat(self._sessions.owner(token), token_hash(token), work)}
