"""The clearing of an item: a person gives its consumer the values that it lacks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.admin.repair.payload import read_json
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.people import Right
from xbus.errors import Refused
from xbus.monitor.actions.action import UNSAID, Action, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.clearing import ClearingDesk
from xbus.monitor.people.visitor import Visitor
from xbus.rpc.codec import Key, Value

MOST_LETTERS = 100_000


class ClearItem(Action):
    """Give a consumer the values of an item that it could not understand."""

    path: ClassVar[str] = "clearing/clear"
    title: ClassVar[str] = "Clear"
    right: ClassVar[Right] = Right.CLEARER

    type: Annotated[str, Field(min_length=1, max_length=255)]
    item_id: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    values: Annotated[
        str, asked("text", "Values", 'A map in JSON, such as {"email": "ada@example.org"}.', max_length=MOST_LETTERS)
    ]

    def command(self) -> Sequence[str]:
        words = ["xbus", "clearing", "clear", str(self.item_id), "--type", self.type]
        if self.values == UNSAID:
            return [*words, UNSAID]
        return words + [f"{name!s}={json.dumps(value, ensure_ascii=False)}" for name, value in self.read().items()]

    def typed(self, bus: BusAccess) -> Mapping[str, str]:
        return {"values": "{\n}"}

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield f"The consumer gets the values of item {self.item_id}, by a request of the type {self.type}."

    def read(self) -> Mapping[Key, Value]:
        """Read the values.

        Raises:
            Refused: they are no map in JSON, or it is empty (``bad_values``).
        """
        values = read_json(self.values)
        if not isinstance(values, dict) or not values:
            raise Refused("the values are no map", 'write them as {"name": "value"}', code="bad_values")
        return values

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        values = self.read()
        desk = ClearingDesk(bus.config)
        # First, so that nothing is cleared without an act. The values stay out of the audit, which outlives them.
        with bus.writing(visitor) as connection:
            item = f"item {self.item_id} of {self.type}"
            note_acts(connection, [act_here(bus.now(), "cleared", item, after=", ".join(map(str, values)))])
        desk.clear(self.type, self.item_id, values)
        yield f"The consumer has taken the values of item {self.item_id}."
