"""``xbus flow run``: runs a whole bus file over the items of a file, in memory, and tells each hop.

Face: the command ``xbus.testing.flow.command:flow``. It stands on ``Bus`` alone.
"""
