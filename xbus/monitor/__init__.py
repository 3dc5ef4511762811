"""The monitor: the bus in the browser, for the people who run it.

A request comes in by ``application``, which knows its person (``people``) and hands it to a page (``pages``) or to the
REST interface (``api``). Both read by the journal's operations, and change by ``actions``, which have one class for
each thing that a person may do. It never holds what the journal does not have, and only asks the broker.

Face: ``program``.
"""
