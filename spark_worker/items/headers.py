"""Headers as a column: a map from names to texts."""

from typing import TypeAlias

import pyarrow as pa

from xbus.headers import joined_texts

HEADERS = pa.map_(pa.string(), pa.string())

Pairs: TypeAlias = tuple[tuple[str, str], ...]


def header_pairs(of_envelope: bytes | None, of_event: bytes | None) -> Pairs:
    """Write the headers of an event and of its envelope as the pairs of a map; the event's header wins."""
    if of_envelope is None and of_event is None:
        return ()
    return tuple(sorted(joined_texts(of_envelope, of_event).items()))
