"""Makes the deliveries of a span of time from the counts of the back; pure. A count only rises until the back ends."""

from collections.abc import Mapping

from xbus.broker.journal.samples.sample import Delivered, most_of

NONE = Delivered(0, 0)


class DeliveryCounts:
    """The counts of the last look."""

    def __init__(self) -> None:
        self._last: Mapping[int, Delivered] | None = None
        self._at = 0.0

    def since_last(self, counts: Mapping[int, Delivered] | None, at: float, observed: float) -> Mapping[int, Delivered]:
        """Give the deliveries within the seconds of a sample, by role id, without roles that committed nothing.

        Beside another monitor a sample is shorter than the time since the last look. So it gets its share.

        Args:
            counts: what the back tells; None where it tells nothing.
            at: the moment of a clock that only goes on.
            observed: the seconds of the sample.
        """
        last, seconds = self._last, at - self._at
        self._last, self._at = counts, at
        if counts is None or last is None or seconds <= 0:
            return {}
        share = min(1.0, observed / seconds)
        found = {role_id: _part(_grown(last.get(role_id, NONE), count), share) for role_id, count in counts.items()}
        return most_of({role_id: each for role_id, each in found.items() if any(each)}, lambda each: each.envelopes)


def _grown(before: Delivered, now: Delivered) -> Delivered:
    """Give the growth of counts; where one fell, the back began anew, and counts from 0."""
    if now.envelopes < before.envelopes:
        return now
    return Delivered(now.envelopes - before.envelopes, now.items - before.items)


def _part(number: Delivered, share: float) -> Delivered:
    return Delivered(round(number.envelopes * share), round(number.items * share))
