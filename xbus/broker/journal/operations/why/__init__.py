"""Reads the facts by which ``xbus why`` explains an envelope, a role or an emitter.

Every read looks rows up by an index and has a bound, so that its cost does not grow with the log. Nothing here words an
answer or changes a row; ``xbus.admin.why`` words it.
"""
