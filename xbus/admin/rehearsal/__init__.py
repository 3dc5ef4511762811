"""Rehearses a change of the bus: it sends the last events of each type through the bus as it is, and as it would be.

Nothing is sent. ``routing`` says where a bus leads events, ``comparing`` counts how two buses differ, ``last_events``
reads what emitters sent. Commands import it.
"""
