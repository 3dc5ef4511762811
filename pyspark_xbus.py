"""Found by Spark itself: makes the format ``xbus`` known to every session that can import this module."""
