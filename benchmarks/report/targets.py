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
        wanted: the least for each database of which something is wanted; the most where ``is_most`` says so.
        is_most: whether the number is not to be exceeded.
    """

    scenario: str
    name: str
    text: str
    wanted: Mapping[str, float]
    is_most: bool = False

    def is_reached(self, place: str, found: float) -> bool:
        """Check a number that was found with a database; where nothing is wanted of it, any will do."""
        if place not in self.wanted:
            return True
        return found <= self.wanted[place] if self.is_most else found >= self.wanted[place]


def _both(number: float) -> dict[str, float]:
    return {SQLITE: number, POSTGRESQL: number}


MIB = 160
"""The memory that the broker may have at its peak."""

REAL = tuple(f"{scenario}_real" for scenario in ("small_1", "small_10", "small_100", "small_100_emitters"))
"""The plain scenarios with the duties of a real bus."""

TARGETS = (
    Target("small_1", "delivered_per_s", "delivered/s", {SQLITE: 1_400, POSTGRESQL: 900}),
    Target("small_10", "delivered_per_s", "delivered/s", {SQLITE: 7_000, POSTGRESQL: 6_000}),
    Target("small_100", "delivered_per_s", "delivered/s", {SQLITE: 15_000, POSTGRESQL: 12_000}),
    Target("small_100_emitters", "delivered_per_s", "delivered/s", {SQLITE: 9_000, POSTGRESQL: 8_000}),
    Target("small_100_emitters", "broker_peak_mib", "broker peak MiB", _both(MIB), is_most=True),
    *(Target(scenario, "ratio", "part of the plain bus", _both(0.7)) for scenario in REAL),
    Target("latency", "value", "p50 ms", {SQLITE: 0.8, POSTGRESQL: 1.3}, is_most=True),
    Target("small_10_standby", "ratio", "part of the same without a standby", {POSTGRESQL: 0.6}),
    Target("small_100_standby", "ratio", "part of the same without a standby", {POSTGRESQL: 0.6}),
    Target("catch_up", "value", "delivered/s", _both(25_000)),
    Target("fan_out", "delivered_per_s", "delivered/s", _both(900)),
    Target("end_to_end", "value", "items/s", {SQLITE: 550_000}),
    Target("end_to_end_worker", "value", "items/s", {SQLITE: 350_000}),
    Target("end_to_end_four", "value", "items/s", {SQLITE: 380_000}),
    Target("small_10_kb", "ratio", "part of floor", _both(0.5)),
    Target("small_1_mb", "delivered_mb_per_s", "delivered MB/s", {SQLITE: 280}),
    Target("small_1_mb", "broker_peak_mib", "broker peak MiB", _both(MIB), is_most=True),
    Target("chained", "ratio", "part of the same without a type between", _both(0.6)),
    Target("reader", "value", "items/s", _both(500_000)),
    Target("reader_small", "value", "items/s", _both(30_000)),
    Target("reader_five", "value", "items/s", _both(600_000)),
    Target("reader_idle", "programs_percent", "% of a core for the programs alone", _both(2), is_most=True),
    Target("bot_trigger", "value", "p99 ms", _both(20), is_most=True),
    Target("file", "value", "MB/s", _both(250)),
    Target("http_callback", "value", "p50 ms, ten events a request", _both(20), is_most=True),
    Target("http_callback_single", "value", "p50 ms, one event a request", _both(20), is_most=True),
    Target("http_callback_batches", "value", "events/s", _both(5_000)),
    Target("http_1000_subscriptions", "ratio", "part of one subscription", _both(0.8)),
)

LIMITS = """**With a hundred in flight the processor of the broker is the limit**: work is done once for a group of
envelopes, and a further envelope of a group costs one or two calls of Python functions.

- With one envelope after another, none of the processes works beside the others: each waits for the one before. The
  code runs on cold caches then, and each call takes several times as long as in a loop.
- Beside a standby, ten in flight wait for one commit. It takes the delay of 1 ms, and the time in which the standby
  writes and answers. A bare echo keeps less of its pace.
- SQLite and PostgreSQL store fewer megabytes a second than large items want: see [decision 79][79]. Large data may lie
  [outside of the database][objects].
- Old clients take some 0.3 ms for an envelope themselves, on the same two cores, and five calls of the broker.

More cores lift the limit: then clients, database, and front and back as [processes of their own][two] no longer share
two.

[79]: decisions/0079-the-ordinary-call-is-short.md
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
    numbers = {place: found.number(target.scenario, place, target.name) for place in (SQLITE, POSTGRESQL)}
    if all(number is None for number in numbers.values()):
        return ""
    sign = "≤" if target.is_most else "≥"
    wanted = " / ".join(dict.fromkeys(f"{sign} {number:,}" for number in target.wanted.values()))
    cells = [_cell(target, place, number) for place, number in numbers.items()]
    return f"| `{target.scenario}` | {wanted} {target.text} | {' | '.join(cells)} |"


def _cell(target: Target, place: str, number: float | None) -> str:
    text = written(number)
    return text if number is None or target.is_reached(place, number) else f"**{text}**"
