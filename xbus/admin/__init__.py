"""The ``xbus`` command: what administrators and operators do with the bus."""
