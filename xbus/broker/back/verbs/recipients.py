"""The back's verbs of wire.md, as recipients for xbus.broker 0.2.0 call them; a refusal is answered, never raised."""

from collections.abc import Awaitable, Callable

from xbus.broker.answers import old_answer
from xbus.broker.back.back import Back
from xbus.broker.sessions import OLD_LOGIN_SECONDS, Sessions
from xbus.ids import token_hash
from xbus.rpc.dispatch import undoes, verb
from xbus.rpc.server import Server

LAST_ANSWERS_SECONDS = 1.0
"""Seconds until a logout is answered while calls are under way. The recipient waits about twice as long. Fewer let a
recipient go sooner that closes its connection with the answer, and may lose its last answers."""


class BackVerbs:
    """One method per verb, named as the verb.

    Args:
        back: carries the calls out.
        sessions: the roles'.
        port: gives the server by which these calls come.
    """

    def __init__(self, back: Back, sessions: Sessions, port: Callable[[], Server]) -> None:
        self._port = port
        self._back = back
        self._sessions = sessions

    @verb("login")
    @old_answer("")
    def login(self, login: str, password: str) -> Awaitable[str]:
        return self._sessions.login(login, password, OLD_LOGIN_SECONDS)

    @undoes("login")
    def undo_login(self, token: str) -> None:
        self._sessions.take_back(token)

    @verb("logout")
    @old_answer(False)
    async def logout(self, token: str) -> bool:
        return await log_out(self._back, self._sessions, token)

    @verb("register_node")
    @old_answer(False)
    def register_node(self, token: str, uri: str) -> Awaitable[bool]:
        return register(self._back, self._sessions.owner(token), token, uri, self._port())

    @verb("ready")
    @old_answer(False)
    def ready(self, token: str) -> bool:
        return is_ready(self._back, self._sessions, token)


def register(back: Back, role_id: int, token: str, uri: str, port: Server) -> Awaitable[bool]:
    """Register a recipient that listens at an address; to be called while its call is carried out."""
    # Now, as it is known only during the call from where that came.
    caller = port.caller_address

    async def registered() -> bool:
        await back.register(role_id, token_hash(token), uri, caller)
        return True

    return registered()


async def log_out(back: Back, sessions: Sessions, token: str) -> bool:
    """End a session, and the registration that was made with it; the registration of a newer session remains."""
    role_id = await sessions.logout(token)
    await back.log_out(role_id, token_hash(token), LAST_ANSWERS_SECONDS)
    return True


def is_ready(back: Back, sessions: Sessions, token: str) -> bool:
    """Note that a worker takes another event; false where nobody is registered for its role."""
    # A replaced recipient must not speak for the newer one of its role.
    recipient = back.registry.find(sessions.owner(token), token_hash(token))
    if recipient is None:
        return False
    recipient.readiness.tell()
    return True
