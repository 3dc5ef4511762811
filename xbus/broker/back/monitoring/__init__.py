"""Shows operators the back: which recipients are present, and which absent roles are owed something for too long.

It looks at the other packages and writes to the journal now and then; nothing depends on it.
"""
