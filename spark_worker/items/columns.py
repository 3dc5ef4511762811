"""The columns that are the worker's own: they bear names with an underscore, and never become part of an item."""

INDEX = "_index"
"""The index of the item, or of the event's item behind it; null if it has several."""

EVENT = "_event_id"
ENVELOPE = "_envelope_id"

CORRUPT = "_corrupt"
"""The text of an item that does not fit the schema; null where all is well."""

ROW = "_row"
"""The item as a row, where one was made when it was read; its bytes are left out then."""

RAW = "_data"
"""The bytes of the item as they came; only where corrupt items are looked for."""

DATA = "data"
"""The bytes of an item."""


def is_own(name: str) -> bool:
    """Check whether a column is the worker's own."""
    return name.startswith("_")
