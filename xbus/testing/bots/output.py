"""The output of a run in virtual time: it is gathered, and sent when the function has returned."""

from collections.abc import Iterable

from xbus.bots import BotOutput
from xbus.emitter import Emitter
from xbus.rpc.items import check_several, item_bytes


class GatheredOutput(BotOutput):
    """Gathers the events of a run.

    Args:
        key: what the run is for.
        emits: the event types that it may put.

    Attributes:
        events: the type and the items of each, packed.
    """

    def __init__(self, key: str, emits: Iterable[str]) -> None:
        super().__init__(key, emits, False, _no_emitter)
        self.events: list[tuple[str, list[bytes]]] = []

    def put(self, type_name: str, items: Iterable[object]) -> None:
        """Gather an event; errors are those of ``BotOutput.put``."""
        self._check(type_name)
        check_several(items)
        self.events.append((type_name, [item_bytes(item) for item in items]))


def _no_emitter() -> Emitter:
    raise AssertionError("nothing is sent before the function has returned")
