"""The runner's calls to the back, over one connection and one session."""

import asyncio
import uuid
from collections.abc import Collection

from xbus.clock import Clock
from xbus.errors import Refused
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import BackLogin, BotRun, ClaimedBotRun, RunEnded, RunsHeld
from xbus.rpc.shapes import AnswerReader

ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer, beside those for which a call may wait at the back."""

KEEPALIVE_SECONDS = 5
"""Seconds between signs of life of the connection: a cable that was pulled sends no goodbye."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_LOGIN = AnswerReader("xbus.login", BackLogin)
_CLAIM = AnswerReader("xbus.claim_run", ClaimedBotRun)
_RENEW = AnswerReader("xbus.renew_runs", RunsHeld)
_END = AnswerReader("xbus.end_run", RunEnded)


class BackCalls:
    """Calls the back as a program of a runner; logs in anew when the back has forgotten the session.

    Args:
        context: for the connection.
        url: the back socket of the bus.
        login: of the runner.
        password: of the runner.
        clock: tells the time.
    """

    def __init__(self, context: Context, url: str, login: str, password: str, clock: Clock) -> None:
        self._login = login
        self._password = password
        self._token = ""
        self._logging_in = asyncio.Lock()
        self.program = str(uuid.uuid4())
        """The UUID of this program."""
        signs = LifeSigns(keepalive_seconds=KEEPALIVE_SECONDS)
        self._client = Client(context, name=url, clock=clock, max_message_bytes=MAX_MESSAGE_BYTES, life_signs=signs)
        self._client.connect(url)

    async def claim(self, seconds: float) -> ClaimedBotRun:
        """Wait for a run for so many seconds."""
        return _CLAIM.read(await self._call("xbus.claim_run", {"wait": seconds}, wait=seconds))

    async def renew(self, runs: Collection[int]) -> list[int]:
        """Extend the leases of runs; give those that are still ours."""
        return _RENEW.read(await self._call("xbus.renew_runs", sorted(runs)))["runs"]

    async def end(self, run: BotRun, result: dict[str, str]) -> bool:
        """End an attempt; whether it was still ours."""
        answer = await self._call("xbus.end_run", run["run"], run["ticket"], result)
        return _END.read(answer)["accepted"]

    async def log_out(self) -> None:
        """End the session, if there is one and the back answers; a later call logs in anew."""
        token, self._token = self._token, ""
        if token:
            await asyncio.wait([self._client.call("xbus.logout", token, timeout=2.0)])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    async def _call(self, verb: str, *arguments: object, wait: float = 0.0) -> Value:
        def call(token: str) -> "asyncio.Future[Value]":
            return self._client.call(verb, token, self.program, *arguments, timeout=wait + ANSWER_SECONDS)

        token = self._token or await self._new_token("")
        try:
            return await call(token)
        except Refused as refusal:
            if refusal.code != "session_unknown":
                raise
        return await call(await self._new_token(token))

    async def _new_token(self, instead_of: str) -> str:
        async with self._logging_in:
            # Several calls may have found out at once that the session is over.
            if self._token in ("", instead_of):
                called = self._client.call("xbus.login", self._login, self._password, timeout=ANSWER_SECONDS)
                self._token = _LOGIN.read(await called)["token"]
            return self._token
