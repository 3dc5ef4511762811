"""Spark itself: finding Java, the session, scratch space, options, and patience with a database that is away."""
