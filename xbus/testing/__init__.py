"""A bus for tests: recipients, graph, journal, front and back as they are, in memory and in virtual time.

``Bus`` is all that a test needs; with pytest, ``pytest_plugins = ["xbus.testing.plugin"]`` gives it as the fixture
``bus``. The modules below it are for tests of the bus itself: the simulation is made of them. No program of the bus
imports this package, but the command ``xbus flow``, which is a part of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xbus.testing.bus import Bus

__all__ = ["Bus"]


def __getattr__(name: str) -> object:
    """Import the bus, and the whole broker with it, for who takes it: ``xbus --help`` shows a command of this package.

    Raises:
        ModuleNotFoundError: a library of the broker is missing.
        AttributeError: the package has no such name.
    """
    if name != "Bus":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from xbus.testing.bus import Bus
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"xbus.testing runs a whole broker, and {error.name} is missing: install xbusd with its extra for the "
            "broker, as in pip install 'xbusd[broker]'",
            name=error.name,
        ) from error
    return Bus
