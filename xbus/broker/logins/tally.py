"""Sums log-ins up for the audit, so that a flood of them can't fill it; pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from xbus.broker.journal.audit import Act
from xbus.clock import Clock

QUIET_SECONDS = 60.0
"""Seconds between two rows about the same login, address and outcome. Less fills the audit sooner."""

MOST_REFUSED = 20
"""Logins and addresses with a row of their own while refusals last. Others are summed up by address."""

MOST_ACCEPTED = 10_000
"""The same for who knows a password. More takes memory where a fleet comes back at once."""

OTHERS = "others"

_LOGIN_LETTERS = 64
"""Letters of a login that are kept: what strangers send may be longer than any login is."""

Outcome: TypeAlias = Literal["login_accepted", "login_refused"]

_MOST: dict[Outcome, int] = {"login_accepted": MOST_ACCEPTED, "login_refused": MOST_REFUSED}


@dataclass(frozen=True, slots=True)
class _LoginKind:
    outcome: Outcome
    login: str
    address: str


@dataclass(slots=True)
class _Sum:
    number: int
    first_at: datetime
    last_at: datetime
    due_at: float


class LoginTally:
    """Counts log-ins by outcome, login and address. The first of a kind is told at once, the next ones as a sum.

    Args:
        of: whose log-ins these are, ``emitter``, ``role`` or ``person``.
        clock: says when they are told.
    """

    def __init__(self, of: str, clock: Clock) -> None:
        self._of = of
        self._clock = clock
        self._sums: dict[_LoginKind, _Sum] = {}
        self._numbers: dict[Outcome, int] = dict.fromkeys(_MOST, 0)

    def note(self, outcome: Outcome, login: str, address: str) -> None:
        """Count a log-in."""
        now = self._clock.now()
        kind = self._kind(outcome, login[:_LOGIN_LETTERS], address)
        found = self._sums.get(kind)
        if found is None:
            self._sums[kind] = _Sum(1, now, now, self._clock.monotonic())
            self._numbers[outcome] += 1
            return
        if not found.number:
            found.first_at = now
        found.number += 1
        found.last_at = now

    def _kind(self, outcome: Outcome, login: str, address: str) -> _LoginKind:
        """Choose the sum to which a log-in counts."""
        number, most = self._numbers[outcome], _MOST[outcome]
        exact, of_address = _LoginKind(outcome, login, address), _LoginKind(outcome, OTHERS, address)
        if exact in self._sums or number < most:
            return exact
        if of_address in self._sums or number < 2 * most:
            return of_address
        return _LoginKind(outcome, OTHERS, OTHERS)

    def take_due(self, *, is_last: bool = False) -> list[Act]:
        """Give what is to be told now, and count anew.

        Args:
            is_last: whether nobody asks again; then everything is due.
        """
        return list(self._take(is_last))

    def _take(self, is_last: bool) -> Iterator[Act]:
        now = self._clock.monotonic()
        for kind, found in [*self._sums.items()]:
            if found.due_at > now and not is_last:
                continue
            if found.number:
                yield self._act(kind, found)
                found.number, found.due_at = 0, now + QUIET_SECONDS
            else:
                del self._sums[kind]
                self._numbers[kind.outcome] -= 1

    def _act(self, kind: _LoginKind, found: _Sum) -> Act:
        times = "" if found.number == 1 else f"{found.number} times until {found.last_at:%Y-%m-%d %H:%M:%SZ}"
        thing = f'{self._of} "{kind.login}"' if kind.login != OTHERS else f"{self._of}s"
        return Act(found.first_at, kind.login, kind.address, kind.outcome, thing, after=times)
