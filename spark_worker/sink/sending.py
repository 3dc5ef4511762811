"""Sends what tasks staged as one envelope."""

import logging
from collections.abc import Sequence
from itertools import chain

from spark_worker.sink.options import SinkOptions
from spark_worker.sink.staging import Staged, Staging
from xbus.emitter import Emitter, Receipt
from xbus.errors import CallError, Refused

log = logging.getLogger(__name__)

KEY_REUSED = "key_reused"
OTHER_CONTENT = ("content_differs", "count_mismatch", "event_closed")
"""The codes by which the bus refuses other content than an open envelope of the same key has."""


def send(options: SinkOptions, staging: Staging, staged: Sequence[Staged], key: str) -> Receipt | None:
    """Send an envelope with one event of all items.

    Args:
        options: the destination, and the login.
        staging: has the items.
        staged: the reports of the tasks.
        key: the key of the envelope; empty for no key.

    Returns:
        None without items: then it sends nothing.

    Raises:
        Refused: the bus refuses it; ``code`` says why, ``key_reused`` that the key belongs to other content.
        Failed: the bus did not take it in time, or the staged items are lost.
    """
    ordered = sorted(staged, key=lambda part: part.partition)
    if not any(part.items for part in ordered):
        return None
    with Emitter(options.url, options.login, options.password, retry_seconds=options.retry_seconds) as emitter:
        try:
            return _send(emitter, options, staging, ordered, key)
        except Refused as refusal:
            if refusal.code not in OTHER_CONTENT or not key:
                raise
            # A driver that died left the envelope open, with rows that came in another order, or with other ones: now
            # it is cancelled, and nobody has seen anything of it.
            return _send(emitter, options, staging, ordered, key)


def _send(emitter: Emitter, options: SinkOptions, staging: Staging, staged: Sequence[Staged], key: str) -> Receipt:
    total = sum(part.items for part in staged)
    envelope = emitter.envelope(ordering_key=options.ordering_key or None, key=key or None, headers=options.headers)
    partition_key = options.partition_key or None
    with envelope, envelope.event(options.event_type, total, partition_key=partition_key) as event:
        for part in staged:
            event.send_all(chain.from_iterable(staging.items(part)))
    return envelope.receipt


def send_once(options: SinkOptions, staging: Staging, staged: Sequence[Staged], key: str) -> None:
    """Send an envelope under a key for good: the bus seals it once, and adds nothing later.

    Raises:
        as ``send``, but for ``key_reused``.
    """
    try:
        send(options, staging, staged, key)
    except CallError as refusal:
        if refusal.code != KEY_REUSED:
            raise
        log.warning(
            "a micro-batch was sent before, with its rows in another order or with other ones: that stands",
            extra={"action": "batch_stands", "key": key},
        )
