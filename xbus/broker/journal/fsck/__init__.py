"""Examines a journal for damage: whatever its tables say twice has to agree. It changes nothing.

Each check reads page by page or row by row, in transactions that only read, so the broker may run. A check yields a
fault for each row that is wrong. Commands import it, and nothing of the broker does.

Face: ``examination``, ``faults``.
"""
