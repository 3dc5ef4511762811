"""Writes the part of the page that compares what was wanted with what was found, and says what the limits are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.report.figures import Figures
from benchmarks.report.numbers import written

SQLITE, POSTGRESQL = "sqlite", "postgresql"


@dataclass(frozen=True)
class Target:
    """A number that was wanted.

    Attributes:
        scenario: where it is measured.
        name: of the number.
        text: says it for people, with its unit.
        wanted: the least for each database; the most where ``is_most`` says so.
        is_most: whether the number is not to be exceeded.
    """

    scenario: str
    name: str
    text: str
    wanted: Mapping[str, float]
    is_most: bool = False

    def is_reached(self, place: str, found: float) -> bool:
        """Check a number that was found with a database."""
        return found <= self.wanted[place] if self.is_most else found >= self.wanted[place]


def _both(number: float) -> dict[str, float]:
    return {SQLITE: number, POSTGRESQL: number}


MIB = 160
"""The memory that the broker may have at its peak."""

TARGETS = (
    Target("small_1", "delivered_per_s", "delivered/s", {SQLITE: 1_500, POSTGRESQL: 1_000}),
    Target("small_10", "delivered_per_s", "delivered/s", _both(5_000)),
    Target("small_100", "delivered_per_s", "delivered/s", _both(10_000)),
    Target("small_100_emitters", "delivered_per_s", "delivered/s", _both(10_000)),
    Target("small_100_emitters", "broker_peak_mib", "broker peak MiB", _both(MIB), is_most=True),
    Target("latency", "value", "p50 ms", _both(1.5), is_most=True),
    Target("latency", "delivered_p99_ms", "p99 ms", _both(5), is_most=True),
    Target("catch_up", "value", "delivered/s", _both(20_000)),
    Target("ack_one", "ratio", "part of floor", _both(0.7)),
    Target("small_old_100", "delivered_per_s", "delivered/s", _both(3_000)),
    Target("end_to_end", "value", "items/s", _both(600_000)),
    Target("end_to_end_worker", "value", "items/s", _both(450_000)),
    Target("end_to_end_four", "value", "items/s", _both(400_000)),
    Target("small_1_mb", "delivered_mb_per_s", "delivered MB/s", _both(300)),
    Target("small_1_mb", "broker_peak_mib", "broker peak MiB", _both(MIB), is_most=True),
    Target("chained", "ratio", "part of the same without a type between", _both(0.6)),
    Target("reader", "value", "items/s", _both(500_000)),
    Target("reader_five", "value", "items/s", _both(600_000)),
    Target("reader_idle", "programs_percent", "% of a core for the programs alone", _both(2), is_most=True),
    Target("bot_trigger", "value", "p99 ms", _both(20), is_most=True),
    Target("file", "value", "MB/s", _both(250)),
    Target("http_callback", "value", "p50 ms, ten events a request", _both(20), is_most=True),
    Target("http_callback_single", "value", "p50 ms, one event a request", _both(20), is_most=True),
    Target("http_callback_batches", "value", "events/s", _both(5_000)),
    Target("http_1000_subscriptions", "ratio", "part of one subscription", _both(0.8)),
)

LIMITS = """**Processor time of Python is the limit of small envelopes**, not the disk and not the database. With a
hundred in flight broker, emitter and consumer take 0.3 to 0.4 ms for an envelope together. Two cores, fully busy, would
pass 5,000 a second. The broker takes most of it, on one core: a process of Python computes in one thread at a time.

- The broker's profile is flat over some 150 functions. Compiled, it took a tenth less: see [decision 80][80].
- With one envelope after another, none of these processes works beside the others: each waits for the one before.
- SQLite and PostgreSQL store fewer megabytes a second than large items want: see [decision 79][79]. Large data may lie
  [outside of the database][objects].
- Old clients take some 0.3 ms for an envelope themselves, on the same two cores.

More cores lift the limit: then clients, database, and front and back as [processes of their own][two] no longer share
two. A gain of several times on two cores needs socket, dispatch and commit in another language.

[79]: decisions/0079-the-ordinary-call-is-short.md
[80]: decisions/0080-our-python-is-not-compiled.md
[objects]: configuration.md#keep-large-data-outside-of-the-database
[two]: configuration.md#run-front-and-back-in-two-processes
"""


def targets(found: Figures) -> Iterable[str]:
    """Write it; nothing where none of the scenarios was measured."""
    rows = [row for target in TARGETS if (row := _row(found, target))]
    if not rows:
        return
    yield "## What was wanted\n"
    yield "A number in bold is one that was not reached.\n"
    yield "| scenario | wanted | sqlite | postgresql |"
    yield "| --- | --- | ---: | ---: |"
    yield from rows
    yield ""
    yield LIMITS


def _row(found: Figures, target: Target) -> str:
    numbers = {place: found.number(target.scenario, place, target.name) for place in target.wanted}
    if all(number is None for number in numbers.values()):
        return ""
    sign = "≤" if target.is_most else "≥"
    wanted = " / ".join(dict.fromkeys(f"{sign} {number:,}" for number in target.wanted.values()))
    cells = [_cell(target, place, number) for place, number in numbers.items()]
    return f"| `{target.scenario}` | {wanted} {target.text} | {' | '.join(cells)} |"


def _cell(target: Target, place: str, number: float | None) -> str:
    text = written(number)
    return text if number is None or target.is_reached(place, number) else f"**{text}**"
