"""Slices of the log as tests ask for them."""

from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Stretch


def whole_ring(position: Place, until: Place | None = None) -> Stretch:
    """The stretch of all hashes."""
    return Stretch(0, LAST_HASH, position, until)
