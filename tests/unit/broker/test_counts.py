"""Counts for metrics: cheap, and bounded in number."""

from collections import Counter

from xbus.broker.counts import CountsBy, Histogram


def test_each_key_has_counts_of_its_own() -> None:
    counts: CountsBy[str, Counter[str]] = CountsBy(Counter)
    counts["shop_1"]["envelopes"] += 1
    counts["shop_1"]["envelopes"] += 2
    counts["shop_2"]["bytes"] += 10
    assert counts == {"shop_1": {"envelopes": 3}, "shop_2": {"bytes": 10}}


def test_further_keys_are_counted_together_and_the_first_go_on_alone() -> None:
    counts: CountsBy[int, Counter[str]] = CountsBy(Counter, most=2)
    for key in (1, 2, 3, 4, 1, 3):
        counts[key]["envelopes"] += 1
    assert counts == {1: {"envelopes": 2}, 2: {"envelopes": 1}, None: {"envelopes": 3}}


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 2, 5, 6):
        histogram.note(value)
    assert (histogram.counts, histogram.sum) == ([2, 2, 1], 14.5)
