"""A full outbox refuses many envelopes at once without reading its whole file for each."""

from pathlib import Path
from uuid import uuid4

from tests.support.journal import NOW
from xbus.emitter.outbox.box import ENVELOPE_BYTES, Outbox, QueuedPut
from xbus.emitter.puts import NewPut
from xbus.envelope import EnvelopeHead
from xbus.headers import NO_TAGS


class CountedOutbox(Outbox):
    """Says how often it has counted the bytes of its file."""

    counts = 0

    def _stored_bytes(self) -> int:
        self.counts += 1
        return super()._stored_bytes()


def small_puts(number: int) -> list[QueuedPut]:
    return [
        QueuedPut(str(uuid4()), str(uuid4()), NewPut("notes", 0, b"", EnvelopeHead(None, str(uuid4()), None), NO_TAGS))
        for _ in range(number)
    ]


def test_the_file_is_counted_once_for_all_that_a_message_brings(tmp_path: Path) -> None:
    box = CountedOutbox(tmp_path / "outbox", 3 * ENVELOPE_BYTES)
    before = box.counts
    refusals = box.queue(small_puts(20), NOW)
    assert [refusal is None for refusal in refusals] == [True] * 3 + [False] * 17
    assert box.counts == before + 1
    box.remove(*[waiting.envelope_id for waiting in box.small_ones(1, 10_000)])
    assert [refusal is None for refusal in box.queue(small_puts(2), NOW)] == [True, False]
    box.close()
