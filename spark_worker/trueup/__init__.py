"""True-up: a source's data set beside what the bus carried of it.

``command`` is ``xbus checksum``, ``against`` opens the data set, and ``comparing`` compares row by row, by key. It
changes nothing, unless its user has it emit what is missing. The program ``xbus`` finds the command; nobody else
imports this package.

Face: ``command``.
"""
