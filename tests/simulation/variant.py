"""What the bus of a world is set to: each seed has its own."""

import random
from dataclasses import dataclass

import sqlalchemy as sa

from tests.simulation.chaining import chain
from xbus import model

ISOLATING = ("notes", "fares")
MAX_ISOLATED = 2

SHARED = ("names_1", "store_1", "store_2")
"""The logins of the roles that several programs may serve."""


@dataclass(frozen=True)
class Variant:
    """How a bus is set.

    Args:
        ordered: the logins of the roles that want order.
        own: whether the consumers stand for themselves.
        isolates: whether the bad items of some event types are parked alone.
        bulk: whether workers take events of several items as a whole.
        instances: so many programs serve each of the roles that several may serve, side by side.
        standby: whether one more waits for each of these roles.
        listening: the logins of the roles whose recipients the broker calls at an address, and not over the connections
            that they made.
        chained: whether a node emits flights as events of another type.
    """

    ordered: tuple[str, ...] = ("store_2",)
    own: bool = False
    isolates: bool = False
    bulk: bool = False
    instances: int = 1
    standby: bool = False
    listening: tuple[str, ...] = ()
    chained: bool = False

    @classmethod
    def chosen(cls, choices: random.Random) -> "Variant":
        ordered = choices.choice((("store_2",), ("store_1", "store_2")))
        own, isolates = choices.random() < 0.3, choices.random() < 0.5
        bulk = choices.random() < 0.5
        instances, standby = choices.choice((1, 1, 2, 3)), choices.random() < 0.3
        listening = choices.choice(((), ("names_1", "store_2"), ("names_1", "prices_1", "store_1", "store_2")))
        chained = choices.random() < 0.3
        return cls(ordered, own, isolates, bulk, instances, standby, listening, chained)

    def programs(self, login: str) -> list[str]:
        """The names of all programs of a role; the first is called as the role."""
        number = self.instances + self.standby if login in SHARED else 1
        return [login, *(f"{login} {each}" for each in range(2, number + 1))]

    def write(self, connection: sa.Connection) -> None:
        """Set a bus to this."""
        if self.chained:
            chain(connection)
        role, service, event_type = model.role.c, model.service.c, model.event_type.c
        connection.execute(sa.update(model.role).where(role.login.in_(self.ordered)).values(ordered=True))
        shared = sa.update(model.role).where(role.login.in_(SHARED))
        connection.execute(shared.values(instances=self.instances, standby=self.standby))
        if self.own:
            connection.execute(sa.update(model.service).where(service.name == "store").values(failures="own"))
        if self.isolates:
            bad_items = sa.update(model.event_type).where(event_type.name.in_(ISOLATING))
            connection.execute(bad_items.values(bad_items="isolate", max_isolated=MAX_ISOLATED))


def toggle_order(connection: sa.Connection, login: str) -> None:
    """As an administrator does with a role."""
    role, version = model.role.c, model.configuration.c.version
    connection.execute(sa.update(model.role).where(role.login == login).values(ordered=~role.ordered))
    connection.execute(sa.update(model.configuration).values(version=version + 1))
