"""The bytes that libzmq holds of each connection, and the choice of connections that are cut off."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from xbus.rpc.guard import tcp
from xbus.rpc.guard.connections import Connection

ENDLESS = "endless_message"
READ_AHEAD = "too_much_ahead"
UNREAD_ANSWERS = "unread_answers"

FORGIVEN_BYTES_PER_SECOND = 64
"""The bytes of a connection that no message contains: signs of life and the like."""

_WORTH_ASKING = 32 * 1024
"""Fewer bytes read ahead are within all limits, also together with those in the system."""

_KNOWN = 4
"""One that has proven who calls may have so many times as much read ahead: old clients send without a window."""

_ALL = 8
"""So many connections may take as much as one may at the most; together all of them take no more."""


class Traffic(NamedTuple):
    """The bytes of a connection that libzmq holds.

    Args:
        connection: whose they are.
        ahead: those that it has read ahead.
        endless: those of them that belong to a message whose end has not come for some time.
        unsent: those that wait to be sent.
    """

    connection: Connection
    ahead: int
    endless: int
    unsent: int


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """The bytes that libzmq may hold.

    Args:
        message: of one connection in a message whose end has not come.
        stranger: the same of those together that have not proven who calls; the largest go first.
        ahead: of one that has not proven who calls, read ahead; of any other, and of all together, some times as much.
        unsent: of one connection, waiting to be sent.
    """

    message: float
    stranger: float
    ahead: float
    unsent: float

    @property
    def ahead_of_all(self) -> float:
        """The bytes of all connections together, read ahead."""
        return _ALL * self.ahead

    @property
    def unsent_of_all(self) -> float:
        """The bytes of all connections together, waiting to be sent."""
        return _ALL * self.unsent


def judge(measured: Iterable[Traffic], limits: TrafficLimits, cut_off: Callable[[Connection, str], None]) -> None:
    """Cut the connections off that go beyond the limits, and the largest ones where all together do."""
    kept = [traffic for traffic in measured if not _is_cut(traffic, limits, cut_off)]
    strangers = [traffic for traffic in kept if not traffic.connection.is_known]
    for crowd, size, most, reason in (
        (strangers, attrgetter("endless"), limits.stranger, ENDLESS),
        (kept, attrgetter("ahead"), limits.ahead_of_all, READ_AHEAD),
        (kept, attrgetter("unsent"), limits.unsent_of_all, UNREAD_ANSWERS),
    ):
        total = sum(map(size, crowd))
        for traffic in sorted(crowd, key=size, reverse=True):
            if total <= most:
                break
            cut_off(traffic.connection, reason)
            total -= size(traffic)


def _is_cut(traffic: Traffic, limits: TrafficLimits, cut_off: Callable[[Connection, str], None]) -> bool:
    if traffic.unsent > limits.unsent:
        reason = UNREAD_ANSWERS
    elif traffic.ahead > limits.ahead * (_KNOWN if traffic.connection.is_known else 1):
        reason = READ_AHEAD
    elif traffic.endless > limits.message:
        reason = ENDLESS
    else:
        return False
    cut_off(traffic.connection, reason)
    return True


def measured(connection: Connection, now: float, *, all_passed: bool) -> Traffic | None:
    """Measure the bytes of a connection that libzmq holds; None where nobody counts them.

    Args:
        connection: it remembers this look.
        now: on the loop's clock.
        all_passed: whether each message that was whole at the last look has been read since. libzmq hands messages out
            in turns, so a connection that had no turn since then had no whole message then.
    """
    carried = tcp.carried(connection.descriptor)
    if carried is None:
        return None
    had_no_turn = connection.turns == connection.turns_at_look
    endless = connection.ahead_at_look if had_no_turn and all_passed else 0
    ahead = carried.received - connection.taken - int((now - connection.since) * FORGIVEN_BYTES_PER_SECOND)
    if ahead > _WORTH_ASKING:
        ahead -= tcp.unread_by_program(connection.descriptor)
    connection.turns_at_look, connection.ahead_at_look = connection.turns, max(ahead, 0)
    return Traffic(connection, max(ahead, 0), endless, max(connection.given - carried.acknowledged, 0))
