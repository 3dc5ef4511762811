"""The back's added verbs, for recipients of our own SDK: errors with a code, and a sign of life."""

import functools
from collections.abc import Awaitable, Callable

from xbus.broker.answers import coded_answer
from xbus.broker.back.back import Back
from xbus.broker.back.verbs.recipients import is_ready, log_out, register
from xbus.broker.sessions import Sessions
from xbus.ids import token_hash
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.messages import BackLogin, Registered, ServingLimits
from xbus.rpc.server import Server


class BackBatchVerbs:
    """One method per verb of the namespace ``xbus``, named as the verb.

    Args:
        back: carries the calls out.
        sessions: the roles'.
        port: gives the server by which these calls come.
        session_seconds: part of the answer to a login.
        max_batch_bytes: part of the answer to a login.
        heartbeat_seconds: part of the answer to a login; 0 for no heartbeats.
    """

    def __init__(
        self,
        back: Back,
        sessions: Sessions,
        port: Callable[[], Server],
        session_seconds: float,
        max_batch_bytes: int,
        heartbeat_seconds: float,
    ) -> None:
        self._back = back
        self._sessions = sessions
        self._port = port
        self._session_seconds = session_seconds
        self._max_batch_bytes = max_batch_bytes
        self._heartbeat_seconds = heartbeat_seconds

    @verb("xbus.login")
    @coded_answer
    def login(self, login: str, password: str) -> Awaitable[BackLogin]:
        # Now, as it is known only during the call who makes it.
        return self._logged_in(self._sessions.login(login, password))

    async def _logged_in(self, session: Awaitable[str]) -> BackLogin:
        token = await session
        return {
            "token": token,
            "proof": True,
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
    def register_node(self, token: str, uri: str) -> Awaitable[bool]:
        return register(self._back, self._sessions.owner(token), token, uri, self._port())

    @verb("xbus.serve")
    @coded_answer
    def serve(self, token: str, channel: bytes) -> Awaitable[ServingLimits]:
        # Now, as it is known only during the call by which connection that came.
        caller = self._port().caller
        self._back.check_in_place(token_hash(token))
        return self._serve(self._sessions.owner(token), token_hash(token), caller, channel)

    async def _serve(self, role_id: int, of_token: bytes, caller: bytes, channel: bytes) -> ServingLimits:
        port = self._port()
        take_up = functools.partial(port.client_of, caller, channel)
        await self._back.serve(role_id, of_token, channel, take_up)
        return {"max_batch_bytes": self._max_batch_bytes, "heartbeat": self._heartbeat_seconds}

    @verb("xbus.ready")
    @coded_answer
    def ready(self, token: str) -> bool:
        return is_ready(self._back, self._sessions, token)

    @verb("xbus.heartbeat")
    @coded_answer
    def heartbeat(self, token: str, work: Value = None) -> Registered:
        # First, as the session of one that was lost has ended.
        self._back.check_in_place(token_hash(token))
        role_id = self._sessions.owner(token)
        is_registered = self._back.heartbeat(role_id, token_hash(token), work, self._port().caller)
        answer: Registered = {"registered": is_registered}
        if self._back.stands_by(role_id, token_hash(token)):
            answer["standby"] = True
        if (pause := self._back.pause_of(role_id)) is not None:
            answer["paused"] = pause.told
        return answer
