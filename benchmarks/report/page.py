"""Writes the page: what was measured, how, and what it does not show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill

from benchmarks.report.figures import Figures
from benchmarks.report.peers import peers
from benchmarks.report.tables import AGES, FLOORED, MEMORY, PROCESSOR, RATES, WIDTH, Column, table
from benchmarks.report.targets import REAL, targets


@dataclass(frozen=True)
class Section:
    """A part of the page with one table.

    Attributes:
        heading: of the part.
        text: what was measured.
        scenarios: the rows of the table.
        columns: of the table.
        picture: the name of its picture and what that shows; empty where there is none.
        with_unit: whether the values have different units.
    """

    heading: str
    text: str
    scenarios: Sequence[str]
    columns: Sequence[Column]
    picture: tuple[str, str] = ("", "")
    with_unit: bool = False


SMALL = ("small_1", "small_10", "small_100", "small_100_emitters")

OLD = ("small_old_1", "small_old_100")
SHAPES = ("worker", "chained", "fan_out", "fan_out_several", "fan_out_own", "ordered")
IDLE = ("idle_100", "idle_1000", "idle_10000")
VALUE = Column("value", "value")

SECTIONS = (
    Section(
        "One invoice, one envelope",
        "Emitters with the asyncio SDK put envelopes of one item of 200 bytes: one emitter with 1, 10 or 100 in "
        "flight, and a hundred emitters with one each. One consumer takes them and does nothing. Delivered/s counts "
        "from the first `put` to the last item. The floor is a bare echo that commits each call, or those that came "
        "together, as one row; it delivers nothing to anybody.",
        SMALL,
        (*RATES, *FLOORED, *AGES),
        ("small.svg", "envelopes a second"),
    ),
    Section(
        "With the duties of a real bus",
        "The same with two event types, four roles and limits. All envelopes have keys and headers, one in ten has an "
        "ordering key, and items are maps. Two roles decide together, and their items count. Another one lags, and one "
        "is absent. The floor is the load without these duties, in turns.",
        REAL,
        (*RATES, *FLOORED, *AGES),
    ),
    Section(
        "Beside a standby of PostgreSQL",
        "One emitter with 10 or 100 in flight. Each commit waits until a standby has applied it, with a delay of 1 ms "
        "(`synchronous_commit = remote_apply`). The floor is the same without a standby, in turns. The bare echo "
        "commits once for all calls that wait, and keeps the last column's part of its pace.",
        ("small_10_standby", "small_100_standby"),
        (*RATES, *FLOORED, *AGES, Column("bare echo's part", "bare_ratio")),
    ),
    Section(
        "Old clients",
        "The same with the verbs of old clients, five calls for an envelope.",
        OLD,
        (*RATES, *FLOORED, *AGES),
    ),
    Section(
        "What an envelope costs",
        "Processor time for one envelope of the broker, the emitters and the consumers, and the most memory that the "
        "broker's process had. PostgreSQL's own processes are not in it.",
        (*SMALL, *OLD, *SHAPES),
        (*PROCESSOR, MEMORY),
        ("cpu.svg", "milliseconds of the broker's processor time for an envelope"),
    ),
    Section(
        "Latency",
        "From `put` to the consumer's `on_item`, one envelope after another, in ms. The quiet ones have pauses of "
        "10 ms between an answer and the next envelope. The floor is the time of the bare echo.",
        ("latency",),
        (
            Column("p50", "value"),
            Column("p99", "delivered_p99_ms"),
            Column("floor", "floor"),
            Column("quiet p50", "quiet_delivered_p50_ms"),
            Column("quiet p99", "quiet_delivered_p99_ms"),
            Column("acknowledged p50", "acknowledged_p50_ms"),
        ),
    ),
    Section(
        "Catching up",
        "A consumer comes back, for which envelopes of one item wait.",
        ("catch_up",),
        (Column("delivered/s", "value"), *PROCESSOR, MEMORY),
    ),
    Section(
        "Other shapes",
        "One emitter with ten envelopes in flight: with a worker on the way, and an event type behind "
        "it (chained); with four consumers that all get each "
        "envelope, and decide together, or each for itself; with a consumer that wants order. The floor is a bus with "
        "one plain consumer, in turns. That of `chained` has no event type between, and both are what was delivered.",
        ("small_10", *SHAPES),
        (*RATES, *FLOORED, *AGES),
    ),
    Section(
        "Several programs of a role",
        "A consumer that sleeps for a millisecond on each envelope: four programs of its role side by side. The floor "
        "is what one program delivers.",
        ("instances",),
        (Column("delivered/s", "value"), *FLOORED),
    ),
    Section(
        "Larger items",
        "One emitter with ten envelopes in flight, in MB a second.",
        ("small_10_kb", "small_1_mb"),
        (
            Column("acknowledged MB/s", "value"),
            Column("delivered MB/s", "delivered_mb_per_s"),
            *FLOORED,
            Column("envelopes/s", "acknowledged_per_s"),
            MEMORY,
        ),
    ),
    Section(
        "A file",
        "A file from an emitter to a consumer that saves it, by an object store, in MB a second. The floor copies the "
        "file twice, each time with fsync.",
        ("file",),
        (
            Column("MB/s", "value"),
            *FLOORED,
            Column("without a store", "objects_off_mb_s"),
            Column("broker CPU s a GB", "broker_cpu_s_per_gb"),
        ),
    ),
    Section(
        "What a bulk worker made",
        "A node emits the output of a bulk worker, 200,000 items of 200 bytes: items a second from the worker's report "
        "until the envelope is sealed, and the broker's processor time from its registration on.",
        ("emitted_output",),
        (Column("items/s", "value"), Column("broker CPU s", "broker_cpu_s"), MEMORY),
    ),
    Section(
        "Idle roles",
        "The broker's processor time for an envelope, in ms, while so many consumer roles of another event type have "
        "nothing to do and nobody is logged in for them. The floor is the same without them.",
        IDLE,
        (Column("broker CPU ms", "value"), *FLOORED, MEMORY, Column("MiB without", "floor_peak_mib")),
    ),
    Section(
        "A rare event type",
        "Three events of a type stand among many other envelopes; a new role begins at the oldest envelope. How long "
        "it takes until it has the three, in ms. The floor is the same where there are only the three.",
        ("rare",),
        (Column("ms", "value"), Column("floor", "floor"), Column("broker CPU s", "broker_cpu_s"), MEMORY),
    ),
    Section(
        "Readers",
        "Items of 200 bytes that a program reads from the log, and takes as bytes: one program of one range over large "
        "envelopes, five programs that share eight ranges of them, and one program over envelopes of one item. The "
        "floor is reading the stored segments on one connection.",
        ("reader", "reader_five", "reader_small"),
        (Column("items/s", "value"), *FLOORED, Column("broker CPU s", "broker_cpu_s"), MEMORY),
    ),
    Section(
        "Readers that wait",
        "A thousand programs of a reader wait at the head of the log, each in a call that it repeats every 3.3 s: the "
        "broker's processor time, as percent of a core. The floor is the same broker without them. A program that has "
        "a range gets an event so many ms after its emitter was told that it is durable.",
        ("reader_idle",),
        (
            Column("% of a core", "value"),
            Column("floor", "floor"),
            Column("the programs alone", "programs_percent"),
            Column("calls/s", "calls_per_s"),
            Column("wake-up ms p50", "wake_p50_ms"),
            Column("p99", "wake_p99_ms"),
        ),
    ),
    Section(
        "Bots",
        "How many ms pass until a bot is called that its runner has called before: from the acknowledgement of an "
        "event that it reads, 20 ms after the call before; and from the slots of a cron of every second.",
        ("bot_trigger",),
        (
            Column("event p50", "p50_ms"),
            Column("event p99", "value"),
            Column("slot p50", "slot_p50_ms"),
            Column("longest", "slot_longest_ms"),
        ),
    ),
    Section(
        "A journal that has grown",
        "Envelopes a second with ten in flight, where the journal has 100,000 of them already. The floor is the same "
        "with 1,000.",
        ("growth",),
        (*RATES, *FLOORED, Column("delivered/s with 1,000", "floor_delivered_per_s")),
    ),
    Section(
        "Batches, memory and restart",
        "Calls of one item (`ack_one`, `ack_100`), large envelopes of 200-byte items with the SDK (`batch_intake`, "
        "`end_to_end`; with a worker, to four consumers, `encrypted` by CURVE and `compressed` in the journal: their "
        "floors are without), small "
        "envelopes by HTTP (`http_publish`), calls of subscribers (`http_callback` and those behind it), "
        "the broker's memory while nobody takes a backlog, and the time from the start of a broker that was killed to "
        "the first item. The module of each scenario says what its floor is.",
        (
            "ack_one",
            "ack_100",
            "batch_intake",
            "end_to_end",
            "end_to_end_worker",
            "end_to_end_four",
            "encrypted",
            "compressed",
            "http_publish",
            "http_callback",
            "http_callback_single",
            "http_callback_batches",
            "http_1000_subscriptions",
            "http_followers",
            "backlog_memory",
            "restart",
        ),
        (VALUE, *FLOORED),
        with_unit=True,
    ),
)

BEGINNING = """# Benchmarks

How fast is an ordinary message, one invoice in one envelope? And what does it cost? `make bench-report` writes this
page from figures that `make bench` and `make bench-peers` have kept. All rows are here, also those in which the bus
loses.
"""

HOW = """## How they were made

```sh
make bench FIGURES=docs/benchmarks/figures.jsonl
make bench-peers FIGURES=docs/benchmarks/figures.jsonl
make bench-report FIGURES=docs/benchmarks/figures.jsonl
```

- The broker, the emitters, the consumers and the databases run in processes of their own on one machine, and share its
  cores. They speak TCP over loopback. What the clients need is in the tables: where they take much of the machine, they
  slow the broker.
- The databases are on a disk, and each commit waits for it.
- A figure is the median of its rounds: three, or as many as `ROUNDS` says. Catching up, the rare type and the restart
  are measured once. A scenario and its floor are measured in turns, and so are all peers.
- Latencies compare the clock of one machine with itself: the item says when it was put.
"""

NOT_SHOWN = """## What they do not show

- Networks: loopback loses nothing and has no delay. Machines of their own for clients and database would give other
  figures, mostly better ones.
- A steady machine: its pace changed by a third within a day. A figure compares better with its floor, measured in
  turns with it, than with a figure of another scenario.
- Disks of other kinds: how long a commit waits decides most rates with few messages in flight.
- Replication: each peer is a single node, and PostgreSQL has no standby.
- Long runs: most rounds take a second or some. `ENVELOPES` makes them longer.
- What the bus does beside: it keeps all envelopes, has them in order for all who come later, and delivers all or
  nothing. Most peers forget a message when it is acknowledged, and do none of that.
- How well somebody who knows a peer by heart would have set it up.
"""


def write(found: Figures) -> str:
    """Write the page in Markdown."""
    sections = [line for section in SECTIONS for line in _section(found, section)]
    return "\n".join(
        [BEGINNING, *_about(found), *sections, *targets(found), *peers(found), HOW, NOT_SHOWN.rstrip(), ""]
    )


def _about(found: Figures) -> Iterable[str]:
    first: dict[str, str] = {}
    for (run, date), machine in found.about.items():
        scenarios = sorted({figure.scenario for figure in found.figures.values() if figure.run == (run, date)})
        if not scenarios:
            continue
        # A later run of some scenarios takes their place alone.
        chosen = "" if first.setdefault(run, date) == date else f" for {', '.join(f'`{each}`' for each in scenarios)}"
        versions = f"Python {machine['python']}, SQLite {machine['sqlite']}"
        place = f"{machine['cores']} cores of {machine['processor']} with {machine['memory_gib']} GiB"
        load = f"The load of the machine was {machine['load_before']} just before."
        yield fill(f"`make {run}` ran{chosen} on {date} on {place}, {versions}. {load}", WIDTH)
        yield ""


def _section(found: Figures, section: Section) -> Iterable[str]:
    rows = table(found, section.scenarios, section.columns, section.with_unit)
    if rows:
        yield f"## {section.heading}\n"
        yield f"{fill(section.text, WIDTH)}\n"
        name, alternative = section.picture
        if name:
            yield f"![{alternative}](benchmarks/{name})\n"
        yield from rows
