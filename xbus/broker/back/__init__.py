"""The back reads sealed envelopes from the journal and delivers them to workers and consumers.

From the bottom: ``log`` reads, ``recipients`` are called, a ``run`` takes one envelope through its graphs,
``progress`` notes the results, ``bulk`` prepares large events, and ``dispatch`` decides who gets what and when.
``assembly`` wires them, ``back`` is the face for ``verbs`` and for ``parts``. It never imports the front.
"""
