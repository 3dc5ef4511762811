"""Spark itself: finding Java, the session, scratch space, options, and patience with a database that is away.

It starts and ends sessions, and reads the options of commands, readers and writers. It knows nothing of transforms and
of the journal's content. All packages above ``items`` may import it.

Face: ``command_options``, ``master``, ``options``, ``patience``, ``session``.
"""
