"""The commands that tell the state of the bus: ``xbus doctor``, ``xbus health`` and ``xbus why``."""
