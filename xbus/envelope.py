"""The facts of an envelope that travel whole: from its emitter over the wire and the journal to those who receive it.

The order of the fields is the order on the wire (``xbus.put_envelopes``), and that of the columns of a group.
"""

from typing import NamedTuple


class EnvelopeHead(NamedTuple):
    """The facts that an emitter gives to an envelope.

    Args:
        ordering_key: roles that want order get envelopes of one key one after the other; None is a key too.
        key: the emitter's name for the envelope, for good; None for none.
        headers: packed; None for none.
    """

    ordering_key: str | None = None
    key: str | None = None
    headers: bytes | None = None


PLAIN_HEAD = EnvelopeHead()
"""The head of an envelope without options; all of them share it."""
