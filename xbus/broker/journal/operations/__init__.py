"""Questions and actions of operators by commands: envelopes, roles, failures, parked work, corrections.

Each function is one bounded read, or one short transaction that leaves a history row. Of the
broker, only its monitoring imports this package.
"""
