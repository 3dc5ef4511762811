"""The spans of an envelope that was received: its way through the front, and its last commit."""

from datetime import datetime

from xbus import tracing
from xbus.broker.journal.writes import SealReceipt


def trace_received(headers: bytes, opened_at: datetime | None, sealed_at: datetime, receipt: SealReceipt) -> None:
    """Trace an envelope that was just sealed, if its headers ask for it.

    Args:
        headers: packed.
        opened_at: when its first call came; None if that was before a restart.
        sealed_at: when its seal was written.
    """
    parent = tracing.parent_of(headers)
    if parent is None:
        return
    about: tracing.Attributes = {"xbus.envelope_id": str(receipt.envelope_id), "xbus.position": receipt.position}
    receiving = tracing.begin("receive", parent, {**about, "xbus.items": receipt.items}, opened_at or sealed_at)
    if receiving is None:
        return
    commit = tracing.begin("commit", receiving.context, about, sealed_at)
    if commit is not None:
        commit.end()
    receiving.end()
