"""Questions of ``xbus doctor``: the database's clock, and what a graph lacks; bounded by the size of the bus file."""

from xbus.broker.journal.operations.checkup.lacking import read_services_without_role, read_types_without_node
from xbus.broker.journal.operations.checkup.moment import read_clock

__all__ = ["read_clock", "read_services_without_role", "read_types_without_node"]
