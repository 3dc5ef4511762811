"""A call, on its way through the side that answers it."""

from dataclasses import dataclass

from xbus.rpc.ports import CallerConnection


@dataclass(eq=False, slots=True)
class Unanswered:
    """The calls of a connection that began in one period and are not answered yet.

    Args:
        weight: of all of them.
        calls: their number.
    """

    weight: int = 0
    calls: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """A call that has come.

    Args:
        peer: the first of its frames: the id of its connection, or a channel.
        frames: those of a request, behind those with which its answer begins.
        size: the bytes of all frames.
        connection: by which it came; None for a call by a channel.
        counted_in: where ``Turns`` counts it while it is under way.
    """

    peer: bytes
    frames: list[bytes]
    size: int
    connection: CallerConnection | None = None
    counted_in: Unanswered | None = None
