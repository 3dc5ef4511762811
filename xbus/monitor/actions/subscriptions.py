"""Having a subscription go on that its subscriber has ended."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from xbus.admin.output import moment
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers.subscriptions import find_ended, resume_subscription
from xbus.monitor.actions.action import Action, Reason
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor


class ResumeSubscription(Action):
    """Have a subscription go on that its subscriber has ended by 410.

    Args:
        name: of the subscription.
    """

    path: ClassVar[str] = "subscriptions/resume"
    title: ClassVar[str] = "Resume"
    right: ClassVar[Right] = Right.OPERATOR

    name: str = Field(max_length=4000)
    reason: Reason

    def command(self) -> Sequence[str]:
        return ["xbus", "subscription", "resume", self.name, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(lambda connection: find_ended(connection, self.name))
        yield f"The subscriber of {self.name} wanted no more, since {moment(found.ended_at)}."
        yield f"Gateways call {found.url} again, with what has come since. What retention has removed is skipped."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            resume_subscription(connection, self.name, decision_of(bus.clock, self.reason))
        yield f"{self.name} goes on."
