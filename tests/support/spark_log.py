"""A bus whose log Spark reads and writes in tests."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.archives import archive
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.journal import looking, settle_all
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.emitter import Emitter, Receipt

TYPES: dict[str, dict[str, list[str]]] = {"orders": {"store": []}, "notes": {"store": []}}


class SparkLog:
    """A broker with two event types, ``orders`` and ``notes``, and what a test does with it.

    Args:
        daemon: started, over a database with these types.
        spark: a session.
    """

    def __init__(self, daemon: Daemon, spark: SparkSession) -> None:
        self.daemon = daemon
        self.spark = spark

    @staticmethod
    def prepare(url: str) -> None:
        """Add the types to a database."""
        add_bus(url, TYPES)

    def emit(self, *events: Sequence[object], type_name: str = "orders") -> Receipt:
        """Send an envelope, each event with these items."""
        with Emitter(self.daemon.front, "emitter_1", PASSWORD) as emitter:
            with emitter.envelope() as envelope:
                for items in events:
                    with envelope.event(type_name) as event:
                        for item in items:
                            event.send(item)
            return envelope.receipt

    def replay(self, receipt: Receipt) -> None:
        """Have an envelope delivered again, as a new one."""
        with Emitter(self.daemon.front, "emitter_1", PASSWORD) as emitter:
            emitter.replay(receipt.envelope_id)

    def read(self, type_name: str = "orders", /, **options: Any) -> DataFrame:
        """The log as a table."""
        reader = self.spark.read.format("xbus").option("config", str(self.daemon.config)).option("eventType", type_name)
        return reader.options(**options).load()

    def read_stream(self, type_name: str = "orders", /, **options: Any) -> DataFrame:
        """The log as a stream."""
        reader = self.spark.readStream.format("xbus").option("config", str(self.daemon.config))
        return reader.option("eventType", type_name).options(**options).load()

    def sink(self, type_name: str = "notes", /, **options: Any) -> dict[str, str]:
        """The options of the sink."""
        given = {"front": self.daemon.front, "login": "emitter_1", "password": PASSWORD, "eventType": type_name}
        return {**given, **{name: str(value) for name, value in options.items()}}

    def archive(self, folder: Path, until: int) -> None:
        """Stop the broker, and move the envelopes up to a position into an archive."""
        self.daemon.stop()
        asyncio.run(_settle(self.daemon.url, until))
        report = archive(self.daemon.url, folder)
        assert report.envelopes == until

    def remove(self, position: int) -> None:
        """Remove an envelope as retention does."""
        envelope, event, segment = model.envelope, model.event, model.segment
        with looking(self.daemon.url) as connection:
            wanted = envelope.select().with_only_columns(envelope.c.id).where(envelope.c.position == position)
            envelope_id = connection.execute(wanted).scalar_one()
            events = event.select().with_only_columns(event.c.id).where(event.c.envelope_id == envelope_id)
            connection.execute(segment.delete().where(segment.c.event_id.in_(events)))
            connection.execute(event.delete().where(event.c.envelope_id == envelope_id))
            connection.execute(envelope.delete().where(envelope.c.id == envelope_id))


async def _settle(url: str, until: int) -> None:
    async with Journal.open(url, "broker") as journal:
        await settle_all(journal, until, SystemClock().now())


def items_of(frame: DataFrame) -> list[bytes]:
    """The items of a table, in the order of the log."""
    return [bytes(row.data) for row in frame.orderBy("position", "event_id", "index").select("data").collect()]


def numbered(numbers: Iterable[int]) -> list[bytes]:
    """An item for each number."""
    return [b"%d" % number for number in numbers]


def forget_last_batch(checkpoint: Path) -> int:
    """Make a checkpoint look as if its driver had died before it noted that its last batch was done.

    Returns:
        The number of that batch.
    """
    commits = {int(path.name): path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    last = max(commits)
    commits[last].unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last
