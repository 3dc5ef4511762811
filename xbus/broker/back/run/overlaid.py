"""Items as one role gets them: some corrected, some left out; pure."""

from collections.abc import AsyncIterator

from xbus.broker.back.log import RunBatch
from xbus.broker.journal.log.overlays import EventOverlay
from xbus.rpc.codec import unpack_items


async def overlaid(batches: AsyncIterator[RunBatch], overlay: EventOverlay) -> AsyncIterator[RunBatch]:
    """The items of an event, corrected and without those that are left out.

    Args:
        batches: as they are in the log.
        overlay: how the event differs from that.
    """
    touched = frozenset(overlay.corrected) | overlay.left_out
    async for batch in batches:
        places = range(batch.first_index, batch.first_index + batch.items)
        changed = batch if touched.isdisjoint(places) else _changed(batch, overlay)
        if changed.items:
            yield changed


def _changed(batch: RunBatch, overlay: EventOverlay) -> RunBatch:
    """Each item that is left keeps the index that its emitter gave it."""
    items = enumerate(unpack_items(batch.data, batch.items), batch.first_index)
    return RunBatch.of_single(
        ([index], overlay.corrected.get(index, item)) for index, item in items if index not in overlay.left_out
    )
