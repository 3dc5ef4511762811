"""Sends an envelope that tells of itself and its event by headers."""

import sys
from datetime import UTC, datetime

from xbus.emitter import Emitter


def main(url: str = "tcp://127.0.0.1:1984") -> None:
    made_at = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
    with Emitter(url, "test_emitter", "password") as emitter:
        with (
            emitter.envelope(headers={"correlation_id": "import 17", "source_time": made_at}) as envelope,
            envelope.event("test_event", headers={"shard": 7}, partition_key="client 7") as event,
        ):
            event.send({"name": "Ada"})
        print("sealed at position", envelope.receipt.position)


if __name__ == "__main__":
    main(*sys.argv[1:])
