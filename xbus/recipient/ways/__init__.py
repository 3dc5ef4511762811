"""The ways by which the broker reaches a recipient, and the connection by which it may call.

It comes over the connection that the recipient made to the back, or to an address at which the recipient listens.
"""

from xbus.recipient.ways.connections import Connections
from xbus.recipient.ways.door import BrokerDoor
from xbus.recipient.ways.own_connection import OwnConnection
from xbus.recipient.ways.own_port import OwnPort
from xbus.recipient.ways.proof import BrokerProof
from xbus.recipient.ways.way import BrokerWay

MAX_MESSAGE_BYTES = 134_217_728
"""The largest message that is read; a broker's batches are far below."""

__all__ = ["MAX_MESSAGE_BYTES", "BrokerDoor", "BrokerProof", "BrokerWay", "Connections", "OwnConnection", "OwnPort"]
