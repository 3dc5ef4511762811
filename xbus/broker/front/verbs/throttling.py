"""Bounds the calls of emitters in flight, for those that have limits of that kind."""

import asyncio
from collections.abc import Callable
from functools import partial

from xbus.broker.front.envelopes import Throttle
from xbus.broker.front.groups import GroupIntake
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.sessions import Sessions
from xbus.errors import CallError, Failed, Refused
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Deferred, Promise
from xbus.rpc.dispatch import Dispatch

BOUND = frozenset(
    {
        "start_event",
        "send_item",
        "end_event",
        "end_envelope",
        "retry_event",
        "replay_envelope",
        "xbus.start_envelope",
        "xbus.start_event",
        "xbus.send_items",
        "xbus.end_event",
        "xbus.end_envelope",
        "xbus.put_envelope",
        "xbus.put_envelopes",
        "xbus.retry_event",
        "xbus.replay_envelope",
    }
)
"""The verbs that are bounded: those that may wait for the journal, and that nobody needs to end something."""

_GATHERED = "xbus.put_envelopes"


class ThrottlingDispatch(Dispatch):
    """Serves the verbs of some objects, and refuses calls beyond the limits of their emitters.

    Args:
        objects: as of ``Dispatch``.
        sessions: the emitters'; they say who calls.
        throttle: counts what is in flight.
        groups: gathers the messages of a turn of the loop. They are put before any other call is carried out.
        note_error: as of ``Dispatch``.
    """

    def __init__(
        self,
        *objects: object,
        sessions: Sessions,
        throttle: Throttle,
        groups: GroupIntake,
        note_error: Callable[[str, list[Value], CallError], None],
    ) -> None:
        super().__init__(*objects, knows=sessions.knows, note_error=note_error)
        self._emitters = sessions
        self._throttle = throttle
        self._groups = groups
        self._seen: Catalog | None = None
        self._bounds_calls = False
        """Whether the calls in flight of any emitter of that catalog are limited."""

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if self._groups.gathered and name != _GATHERED:
            self._groups.flush()
        catalog = self._throttle.configuration.catalog
        if catalog is not self._seen:
            self._seen, self._bounds_calls = catalog, self._throttle.bounds_calls
        if not self._bounds_calls or (emitter_id := self._bounded_emitter(name, args, kwargs)) is None:
            return (self.handlers.get(name) or self.handler(name))(args, kwargs)
        size = _carried_bytes([args, *kwargs.values()])
        try:
            self._throttle.begin_call(emitter_id, size)
        except Failed as error:
            return self.refuse(name, error)
        end = partial(self._throttle.end_call, emitter_id, size)
        outcome: object = None
        try:
            outcome = self.handler(name)(args, kwargs)
        finally:
            if not isinstance(outcome, Deferred | Promise | asyncio.Future):
                end()
        if isinstance(outcome, Deferred | Promise | asyncio.Future):
            outcome.add_done_callback(lambda _: end())
        return outcome

    def _bounded_emitter(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> int | None:
        """Give the emitter that calls, if its calls in flight have a limit."""
        token = args[0] if args else kwargs.get("token")
        if name not in BOUND or not isinstance(token, str):
            return None
        try:
            emitter_id = self._emitters.owner(token)
        except Refused:
            return None
        return emitter_id if self._throttle.counts_calls(emitter_id) else None


def _carried_bytes(value: Value) -> int:
    """Count the bytes of items in the arguments of a call."""
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_carried_bytes, value)) if isinstance(value, list) else 0
