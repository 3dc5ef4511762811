"""The two ways by which a broker calls recipients of our library, for tests that hold for both."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

ANY_PORT = "tcp://127.0.0.1:*"

OWN_CONNECTION, PORT = "own connection", "port"


class Way:
    """The way that recipients take which a test serves or starts.

    Attributes:
        bind: where they listen; "" where they open no port.
    """

    def __init__(self) -> None:
        self.bind = ""

    def take(self, name: str) -> None:
        """Take a way until another is taken."""
        self.bind = ANY_PORT if name == PORT else ""

    @property
    def options(self) -> Sequence[str]:
        """The options of ``xbus recipient run``."""
        return ["--bind", self.bind] if self.bind else []

    @contextmanager
    def taken(self, name: str) -> Iterator[None]:
        """Take a way until the block is left."""
        before = self.bind
        self.take(name)
        try:
            yield
        finally:
            self.bind = before


WAY = Way()
