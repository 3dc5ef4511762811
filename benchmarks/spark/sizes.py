"""How much is read, transformed and streamed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The amounts of a measurement; those that are given here take all scenarios some minutes for each database.

    Args:
        rounds: how often a rate and its floor are measured.
        warm_items: items of the envelope that goes ahead of a bulk transform, so that its session is warm.
        read_envelopes: envelopes that are read by the source.
        read_items: items of each of those.
        bulk_items: items of the one event of a bulk transform.
        cluster_items: the same on a cluster.
        stream_items: items of each micro-batch of the steady stream.
        stream_batches: how many of those are measured, behind one that warms up.
        flat_items: items of each micro-batch where the cost of an item is compared.
        flat_times: how many of them the long log has; the short one has one.
        flat_queries: how many queries read the short log.
        small_batches: how many micro-batches of a few items are measured.
    """

    rounds: int = 3
    warm_items: int = 200_000
    read_envelopes: int = 100
    read_items: int = 50_000
    bulk_items: int = 5_000_000
    cluster_items: int = 4_000_000
    stream_items: int = 500_000
    stream_batches: int = 10
    flat_items: int = 100_000
    flat_times: int = 100
    flat_queries: int = 10
    small_batches: int = 10


TINY = Sizes(
    rounds=1,
    warm_items=1_000,
    read_envelopes=4,
    read_items=500,
    bulk_items=10_000,
    cluster_items=10_000,
    stream_items=500,
    stream_batches=2,
    flat_items=100,
    flat_times=4,
    flat_queries=1,
    small_batches=2,
)
"""Enough to see that all of it works."""
