"""How far micro-batches reach."""

from spark_worker.source.stream import IDLE_POSITIONS, IDLE_SECONDS, StreamProgress


class Log:
    """Positions at which there is something of the type."""

    def __init__(self, *positions: int) -> None:
        self.positions = set(positions)
        self.asked: list[tuple[int, int]] = []
        self.time = 0.0

    def next_end(self, after: int, until: int, most_items: int | None) -> int | None:
        self.asked.append((after, until))
        found = sorted(position for position in self.positions if after < position <= until)
        if not found:
            return None
        return until if most_items is None else found[min(most_items, len(found)) - 1]

    def progress(self) -> StreamProgress:
        return StreamProgress(self.next_end, lambda: self.time)


def test_a_micro_batch_reaches_to_where_the_log_tells() -> None:
    progress = Log(2, 4, 6).progress()
    assert progress.next_end(0, 7, None) == 7
    assert progress.next_end(0, 7, 2) == 4


def test_there_is_none_where_nothing_of_the_type_has_come() -> None:
    log = Log(2)
    progress = log.progress()
    assert progress.next_end(2, 2, None) == 2
    assert progress.next_end(2, 10, None) == 2
    assert progress.next_end(2, 12, None) == 2
    # What was looked at is not looked at again.
    assert log.asked == [(2, 10), (10, 12)]
    log.positions.add(13)
    assert progress.next_end(2, 14, None) == 14


def test_a_query_passes_envelopes_of_other_types_now_and_then() -> None:
    log = Log()
    progress = log.progress()
    assert progress.next_end(0, IDLE_POSITIONS - 1, None) == 0
    assert progress.next_end(0, IDLE_POSITIONS, None) == IDLE_POSITIONS
    assert progress.next_end(IDLE_POSITIONS, IDLE_POSITIONS + 1, None) == IDLE_POSITIONS
    log.time += IDLE_SECONDS
    assert progress.next_end(IDLE_POSITIONS, IDLE_POSITIONS + 1, None) == IDLE_POSITIONS + 1
    # Where nothing at all has come it stays, however long that lasts.
    log.time += 10 * IDLE_SECONDS
    assert progress.next_end(IDLE_POSITIONS + 1, IDLE_POSITIONS + 1, None) == IDLE_POSITIONS + 1
