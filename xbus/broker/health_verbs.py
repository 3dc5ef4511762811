"""The verbs of both sockets that need no login and no database, and ports that answer health alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from xbus.clock import SystemClock
from xbus.config import Config
from xbus.errors import Failed
from xbus.rpc.client import LEADS
from xbus.rpc.codec import Key, Value
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.messages import HealthReport
from xbus.rpc.server import Server
from xbus.supervision.health import Health

MAX_MESSAGE_BYTES = 1024 * 1024


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


class LeaderVerbs(HealthVerbs):
    """Verbs of health, and one by which clients of several brokers find the one that leads.

    Args:
        health: of this process.
        bus: gives the id of the bus.
    """

    def __init__(self, health: Health, bus: Callable[[], str]) -> None:
        super().__init__(health)
        self._bus = bus

    @verb(LEADS)
    def leads(self) -> str:
        """Give the id of the bus; a broker that stands by fails in its place."""
        return self._bus()


class HealthAlone(Dispatch):
    """Serves the verbs of health, and fails every other call.

    Args:
        health: what they tell.
        failure: makes the error of another call.
    """

    def __init__(self, health: Health, failure: Callable[[], Failed]) -> None:
        super().__init__(HealthVerbs(health))
        self._failure = failure

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if name not in self.verbs:
            raise self._failure()
        return super().call(name, args, kwargs)


@contextmanager
def answering(config: Config, names: Sequence[str], dispatch: Dispatch) -> Iterator[dict[str, str]]:
    """Answer calls at the plain addresses of a broker, without one; gives the addresses that were taken, by part.

    Raises:
        XbusError: a port is taken.
    """
    context = new_context()
    addresses = {"front": config.zmq.frontsocket, "back": config.zmq.backsocket}
    limits = ServerLimits(max_message_bytes=MAX_MESSAGE_BYTES)
    servers = {name: Server(context, dispatch, name=name, limits=limits, clock=SystemClock()) for name in names}
    try:
        taken = {name: server.bind(addresses[name]) for name, server in servers.items()}
        for server in servers.values():
            server.start()
        yield taken
    finally:
        for server in servers.values():
            server.close()
        context.destroy(linger=0)
