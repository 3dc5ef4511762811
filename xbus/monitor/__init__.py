"""The monitor: the bus in the browser, for the people who run it.

A request comes in by ``application``, which knows its person (``people``) and hands it to one of the ``features``. Each
has pages, answers for programs, and ``actions``: a class for each thing that a person may do. Nothing here has what the
journal does not have, and the broker is only asked.

Face: ``program``.
"""
