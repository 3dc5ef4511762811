"""Found by Spark itself: makes the format ``xbus`` known to every session that can import this module."""

from spark_worker.data_source import XbusDataSource as DefaultSource

__all__ = ["DefaultSource"]
