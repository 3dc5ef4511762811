"""Reading programs in virtual time: the SDK's reader over the verbs of the back, without sockets.

Face: ``InMemoryReader`` for a test, ``ReadingVerbs`` for the broker. Only ``xbus.testing`` imports it.
"""

from xbus.testing.pull.connection import ReadingConnection
from xbus.testing.pull.reader import InMemoryReader, open_reader
from xbus.testing.pull.verbs import ReadingVerbs

__all__ = ["InMemoryReader", "ReadingConnection", "ReadingVerbs", "open_reader"]
