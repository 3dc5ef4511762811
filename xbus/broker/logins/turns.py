"""The turns of logins: a crowd of one caller does not keep others waiting."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from xbus.broker.logins.wrong_guesses import WrongGuesses
from xbus.errors import Failed

LOGINS_AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // 2))
"""Checking a password costs memory and a core on purpose; a crowd of logins must leave cores for the others. With two
checks on two cores, a logged-in emitter lost a third of its pace and more."""

MOST_WAITING = 500
"""Logins that may wait. More let larger fleets of clients come back at once, and each takes memory."""

TURNED_AWAY_SECONDS = 1.0
"""Seconds until a login is answered that finds no room. Less has a crowd come back sooner, more takes memory."""

MOST_COUNTED = 10_000
"""Turns that are counted before the counts begin anew."""


class Caller(NamedTuple):
    """The connection by which a login came, and the address of the machine at its other end.

    ``key`` is the public key of that, and empty without encryption.
    """

    connection: bytes
    address: str
    key: str = ""


@dataclass(eq=False, slots=True)
class _Waiting:
    login: str
    caller: Caller
    turn: "asyncio.Future[None]"


class LoginTurns:
    """Gives logins their turns, those first that had the fewest: by their connection, their login and their address.

    Among equals the newest goes first: its caller waits longest from now on, and a queue that somebody else filled
    before does not delay it.

    A login waits for the pauses that wrong guesses have brought upon it. When too many wait, the connection with the
    most of them loses its newest.

    Args:
        guesses: says how long a login must wait.
    """

    def __init__(self, guesses: WrongGuesses) -> None:
        self._guesses = guesses
        # In the order of their arrival.
        self._waiting: dict[_Waiting, None] = {}
        self._crowds: Counter[bytes] = Counter()
        self._running = 0
        self._turns: Counter[object] = Counter()
        self._look: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, login: str, caller: Caller, deadline: float) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the block.

        Args:
            login: of an emitter or a role, existing or not.
            caller: who wants to log in.
            deadline: the moment, on the loop's clock, from which the caller waits no longer.

        Raises:
            Failed: login_too_late, when the time is over or too many wait.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(login, caller, loop.create_future())
        self._arrive(waiting)
        try:
            async with asyncio.timeout_at(deadline):
                await waiting.turn
        except BaseException as error:
            self._leave(waiting)
            if isinstance(error, TimeoutError):
                raise too_late() from None
            raise
        try:
            yield
        finally:
            self._running -= 1
            self._next()

    def _arrive(self, waiting: _Waiting) -> None:
        self._waiting[waiting] = None
        self._crowds[waiting.caller.connection] += 1
        if len(self._waiting) > MOST_WAITING:
            self._turn_away()
        if self._running < LOGINS_AT_ONCE:
            # Those who came before wait for their pauses. A look at all of them for each that comes would cost a core.
            pause = self._guesses.pause(waiting.login, waiting.caller.address)
            if pause <= 0:
                self._next()
            else:
                self._look_in(pause)

    def _remove(self, waiting: _Waiting) -> None:
        del self._waiting[waiting]
        connection = waiting.caller.connection
        self._crowds[connection] -= 1
        if not self._crowds[connection]:
            del self._crowds[connection]

    def _leave(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._remove(waiting)
        elif waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.exception() is None:
            # The turn came in the same moment as the end of the wait.
            self._running -= 1
            self._next()

    def _turn_away(self) -> None:
        crowd = max(self._crowds, key=self._crowds.__getitem__)
        newest = next(waiting for waiting in reversed(self._waiting) if waiting.caller.connection == crowd)
        self._remove(newest)
        asyncio.get_running_loop().call_later(TURNED_AWAY_SECONDS, _refuse, newest)

    def _look_in(self, pause: float) -> None:
        at = asyncio.get_running_loop().time() + pause
        if self._look is None or self._look.when() > at:
            self._stop_looking()
            self._look = asyncio.get_running_loop().call_at(at, self._next)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _next(self) -> None:
        """Give the free turns away, and look again when the first pause of those that wait is over."""
        self._stop_looking()
        while self._running < LOGINS_AT_ONCE:
            # One that was just cancelled leaves at the loop's next turn, and can take nothing any more.
            still = [waiting for waiting in self._waiting if not waiting.turn.done()]
            if not still:
                return
            pauses = {waiting: self._guesses.pause(waiting.login, waiting.caller.address) for waiting in still}
            ready = [waiting for waiting, pause in pauses.items() if pause <= 0]
            if not ready:
                self._look_in(min(pauses.values()))
                return
            chosen = min(reversed(ready), key=self._rank)
            self._remove(chosen)
            self._count(chosen)
            self._running += 1
            chosen.turn.set_result(None)

    def _rank(self, waiting: _Waiting) -> int:
        return sum(self._turns[counted] for counted in _counted(waiting))

    def _count(self, chosen: _Waiting) -> None:
        if not self._waiting or len(self._turns) > MOST_COUNTED:
            # Nobody who waits now had more than others.
            self._turns.clear()
        self._turns.update(_counted(chosen))


def _refuse(waiting: _Waiting) -> None:
    if not waiting.turn.done():
        waiting.turn.set_exception(Failed("too many logins wait", "log in again", code="login_too_late"))


def _counted(waiting: _Waiting) -> tuple[object, ...]:
    # A connection is bytes, and a login never equals an address by chance.
    return waiting.caller.connection, ("login", waiting.login), ("address", waiting.caller.address)


def too_late() -> Failed:
    """Make the error of a login whose time is over."""
    return Failed("the login could not be answered in time", "log in again", code="login_too_late")
