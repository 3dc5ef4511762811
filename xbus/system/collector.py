"""Keeps Python's collector of reference cycles away from what stays for ever, in programs that the bus runs itself.

With a hundred calls in flight it would walk through all that start-up made again and again, an eighth of the broker's
time, and a worker spent a quarter of its own. Reference counts free the objects of calls, so the collector may look for
cycles less often. Emitters and ``serve`` are parts of other programs, which choose for themselves.
"""

import gc

NEW_OBJECTS = 10_000
"""New objects between two looks at the youngest ones. More look less often, and keep lost cycles for longer."""

LOOKS = 20
"""Looks at younger objects between two at the older ones."""


def spare_what_is_here() -> None:
    """Leave alone all that the process has made until now; to be called when it has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, LOOKS, LOOKS)
