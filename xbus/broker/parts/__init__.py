"""The two parts of the broker, put together from the configuration: each can run in a process of its own."""

from collections.abc import Callable

from xbus.broker.parts.back import BackPart
from xbus.broker.parts.front import FrontPart
from xbus.broker.parts.shared import BrokerPart, Shared

PARTS: dict[str, Callable[[Shared], BrokerPart]] = {"back": BackPart, "front": FrontPart}
"""In the order in which they start; they stop the other way round."""

__all__ = ["PARTS", "BrokerPart", "Shared"]
