"""Bounds the calls in flight of emitters that have such a limit."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from xbus.broker.front.envelopes import Throttle
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.sessions import Sessions
from xbus.errors import CallError, Failed, Refused
from xbus.rpc.codec import Key, Value
from xbus.rpc.deferred import Deferred, Promise
from xbus.rpc.dispatch import Dispatch, Give, SharedCall

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


class ThrottlingDispatch(Dispatch):
    """Serves the verbs of some objects, and refuses calls beyond the limits of their emitters.

    Args:
        objects: as of ``Dispatch``.
        sessions: the emitters'; they say who calls.
        throttle: counts what is in flight.
        note_error: as of ``Dispatch``.
    """

    def __init__(
        self,
        *objects: object,
        sessions: Sessions,
        throttle: Throttle,
        note_error: Callable[[str, list[Value], CallError], None],
    ) -> None:
        super().__init__(*objects, knows=sessions.knows, note_error=note_error)
        self._emitters = sessions
        self._throttle = throttle
        self._seen: Catalog | None = None
        self._bounds_calls = False
        """Whether the calls in flight of any emitter of that catalog are limited."""

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if (emitter_id := self._bounded_emitter(name, args, kwargs)) is None:
            return super().call(name, args, kwargs)
        size = _carried_bytes([args, *kwargs.values()])
        try:
            self._throttle.begin_call(emitter_id, size)
        except Failed as error:
            return self.refuse(name, error)
        end = partial(self._throttle.end_call, emitter_id, size)
        outcome: object = None
        try:
            outcome = super().call(name, args, kwargs)
        finally:
            if not isinstance(outcome, Deferred | Promise | asyncio.Future):
                end()
        if isinstance(outcome, Deferred | Promise | asyncio.Future):
            outcome.add_done_callback(lambda _: end())
        return outcome

    def call_together(self, calls: Sequence[SharedCall], give: Give) -> None:
        if self._bounds_any_calls:
            begun: dict[SharedCall, tuple[int, int]] = {}
            calls = [call for call in calls if self._begins(call, begun, give)]
            give = partial(self._end_and_give, begun, give)
        super().call_together(calls, give)

    def _begins(self, call: SharedCall, begun: dict[SharedCall, tuple[int, int]], give: Give) -> bool:
        """Note a call in flight, or refuse it.

        Args:
            begun: the emitters and bytes of calls in flight that are bounded.
        """
        emitter_id = self._bounded_emitter(self.shared, call.args, {})
        if emitter_id is not None:
            size = _carried_bytes(call.args)
            try:
                self._throttle.begin_call(emitter_id, size)
            except Failed as error:
                give([call], [error])
                return False
            begun[call] = emitter_id, size
        return True

    def _end_and_give(
        self,
        begun: dict[SharedCall, tuple[int, int]],
        give: Give,
        calls: Sequence[SharedCall],
        answers: Sequence[object],
    ) -> None:
        for call in calls:
            if call in begun:
                self._throttle.end_call(*begun.pop(call))
        give(calls, answers)

    @property
    def _bounds_any_calls(self) -> bool:
        """Check whether the calls in flight of any emitter are limited; asked anew of each catalog."""
        catalog = self._throttle.configuration.catalog
        if catalog is not self._seen:
            self._seen, self._bounds_calls = catalog, self._throttle.bounds_calls
        return self._bounds_calls

    def _bounded_emitter(self, name: str | None, args: list[Value], kwargs: dict[Key, Value]) -> int | None:
        """Give the emitter that calls, if its calls in flight have a limit."""
        if not self._bounds_any_calls or name not in BOUND:
            return None
        token = args[0] if args else kwargs.get("token")
        if not isinstance(token, str):
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
