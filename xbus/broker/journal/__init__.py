"""The journal keeps what is durable; front and back meet only here, and all SQL of the bus is here.

``journal`` is the face for the broker: it hands ``writes`` to the thread in ``commit`` and runs the reads of ``log``
and ``bulk``. Commands use ``operations`` and ``configuration``. The journal knows nothing of those who use it.
"""
