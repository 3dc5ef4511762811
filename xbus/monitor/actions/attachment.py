"""Taking consumer roles off the bus, and putting them on again."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from xbus.admin.repair.outlook import told
from xbus.broker.journal.configuration import detaching
from xbus.broker.journal.people import Right
from xbus.monitor.actions.action import Action, Reason
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor


class Detach(Action):
    """Take an absent consumer role off the bus, which keeps nothing for it any more."""

    path = "recipients/detach"
    title = "Detach"
    right: ClassVar[Right] = Right.OPERATOR
    is_final = True

    login: str = Field(max_length=4000)
    reason: Reason

    def command(self) -> Sequence[str]:
        return ["xbus", "recipient", "detach", self.login, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield from bus.read(lambda connection: list(told(detaching.outlook(connection, self.login))))
        yield "It can't register until somebody attaches it, and gets what is received from then on."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            detaching.detach(connection, self.login, self.reason, bus.now())
        yield f"{self.login} is detached."


class Attach(Action):
    """Put a detached consumer role on the bus again."""

    path = "recipients/attach"
    title = "Attach"
    right: ClassVar[Right] = Right.OPERATOR

    login: str = Field(max_length=4000)

    def command(self) -> Sequence[str]:
        return ["xbus", "recipient", "attach", self.login]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        yield f"Put {self.login} on the bus again. It gets envelopes that are received from now on."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            position = detaching.attach(connection, self.login, bus.now())
        yield f"{self.login} is attached: it gets all from position {position} on."
