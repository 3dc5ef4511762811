"""The health verb of both sockets; it needs no login, and no database."""

from xbus.rpc.dispatch import verb
from xbus.rpc.messages import HealthReport
from xbus.supervision.health import Health


class HealthVerbs:
    """One method, named as the verb.

    Args:
        health: of this process.
    """

    def __init__(self, health: Health) -> None:
        self._health = health

    @verb("xbus.health")
    def health(self) -> HealthReport:
        return self._health.report()
