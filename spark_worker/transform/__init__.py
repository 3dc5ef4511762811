"""From the items of an event to the items that come of them: what users write, and the pipeline around it.

``transforms`` loads the author's function or query, ``pipeline`` parses items, calls it and encodes what it made, and
``ordering`` keeps the order. Nothing here reads or writes the journal, or runs a job before it is asked for rows. The
worker imports it.

Face: ``pipeline``, ``transforms``.
"""
