"""Writes the part of the page about other brokers."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from benchmarks.report.figures import Figure, Figures
from benchmarks.report.tables import AGES, RATES, WIDTH, Column, table

ALONE = "peers_1"
SCENARIOS = (ALONE, "peers_10", "peers_100")
OURS = "xbus_"
COLUMNS = (
    *RATES,
    *AGES,
    Column("server CPU ms", "server_cpu_ms"),
    Column("sender CPU ms", "sender_cpu_ms"),
    Column("taker CPU ms", "taker_cpu_ms"),
    Column("server peak MiB", "server_peak_mib"),
)
COMPARED = {"acknowledged": "value", "delivered": "delivered_per_s"}

TEXT = """One sender sends messages of 200 bytes with 1, 10 or 100 in flight, and waits until the server confirms each.
One taker acknowledges them. The bus is measured by the same programs in the same run; its message is an envelope. A
server's processor time and memory include the database's where there is one.
"""


def peers(found: Figures) -> Iterable[str]:
    """Write it; nothing where no peer was measured or left out."""
    measured = {figure.place: figure for scenario in SCENARIOS for figure in found.of(scenario)}
    if not measured and not found.left_out:
        return
    yield "## Other brokers\n"
    yield TEXT
    for scenario in SCENARIOS:
        if rows := table(found, [scenario], COLUMNS):
            yield f"![messages a second, {in_words(scenario)}](benchmarks/{scenario}.svg)\n"
            yield from rows
            yield f"{fill(_losses(found.of(scenario), in_words(scenario)), WIDTH)}\n"
    if found.of(ALONE):
        yield "![milliseconds from sender to taker](benchmarks/peers_latency.svg)\n"
    yield from (_listed(f"`{name}`: {figure.settings}.") for name, figure in measured.items())
    yield from (_listed(f"`{name}` was left out: {cause}.") for name, cause in found.left_out.items())
    yield ""


def _listed(text: str) -> str:
    return fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ")


def in_words(scenario: str) -> str:
    """Say how many messages are in flight in a scenario."""
    return f"{scenario.removeprefix('peers_')} in flight"


def _losses(figures: Sequence[Figure], scenario: str) -> str:
    """Say which peers are faster than the bus where that does best."""
    said = []
    for verb, name in COMPARED.items():
        ours = max((figure.numbers.get(name, 0) for figure in figures if figure.place.startswith(OURS)), default=0)
        faster = [f"`{one.place}`" for one in figures if not one.place.startswith(OURS) and one.numbers[name] > ours]
        said.append(f"{', '.join(faster) or 'none of them'} {verb} more a second than the bus")
    return f"With {scenario}, {said[0]}, and {said[1]}."
