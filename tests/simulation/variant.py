"""What the bus of a world is set to: each seed has its own."""

import random
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model

ISOLATING = ("notes", "fares")
MAX_ISOLATED = 2


@dataclass(frozen=True)
class Variant:
    """How a bus is set.

    Args:
        ordered: the logins of the roles that want order.
        own: whether the consumers stand for themselves.
        isolates: whether the bad items of some event types are parked alone.
        bulk: whether workers take events of several items as a whole.
    """

    ordered: tuple[str, ...] = ("store_2",)
    own: bool = False
    isolates: bool = False
    bulk: bool = False

    @classmethod
    def chosen(cls, choices: random.Random) -> "Variant":
        ordered = choices.choice((("store_2",), ("store_1", "store_2")))
        own, isolates = choices.random() < 0.3, choices.random() < 0.5
        return cls(ordered, own, isolates, bulk=choices.random() < 0.5)

    def write(self, connection: sa.Connection) -> None:
        """Set a bus to this."""
        role, service, event_type = model.role.c, model.service.c, model.event_type.c
        connection.execute(sa.update(model.role).where(role.login.in_(self.ordered)).values(ordered=True))
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
