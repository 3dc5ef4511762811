"""The things that a person may do: each is a class, which says the right it needs and the command that does the same.

The page ``/do/PATH`` shows what an action would do, and carries it out; ``POST /api/PATH`` carries it out for programs.
Both come from the class, so a new action is a class and a line in ``ACTIONS``.

Face: ``table``, ``serving``.
"""
