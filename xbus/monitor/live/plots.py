"""Drawings of what samples say: the graph of the bus with what passes, and plots over time of the bus and of roles."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from xbus.admin.output import age, counted
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.samples.outline import BusOutline, ReaderFigures, Ways
from xbus.broker.journal.samples.sample import Delivered, RoleLag, Sample, floor, join
from xbus.broker.journal.samples.taking import RoleFigures
from xbus.broker.journal.writes import PauseKind
from xbus.monitor.drawings.graphs import BusDrawing, GraphColumn, GraphNode, GraphRow, draw
from xbus.monitor.drawings.plot import NUMBER, SECONDS, LinePlot, PlotValue, number_text, plot, rate_of, span_text
from xbus.monitor.live.sampler import BusNow
from xbus.states import TONE_OF, Tone


class PlotRange(NamedTuple):
    """A range of time up to now.

    Args:
        step: the kind of samples that it is made of, in seconds.
        part: seconds of one value.
    """

    title: str
    length: timedelta
    step: int
    part: int

    def since(self, now: datetime) -> datetime:
        """Give the moment at which it begins."""
        return floor(now, self.part) - self.length

    def until(self, now: datetime) -> datetime:
        """Give the moment at which it ends: the end of the part that has begun."""
        return floor(now, self.part) + timedelta(seconds=self.part)


RangeName: TypeAlias = Literal["15min", "6h", "1d", "1w", "5w"]
"""The names that addresses have."""

RANGES: Mapping[RangeName, PlotRange] = {
    "15min": PlotRange("15 minutes", timedelta(minutes=15), 10, 15),
    "6h": PlotRange("6 hours", timedelta(hours=6), 60, 180),
    "1d": PlotRange("1 day", timedelta(days=1), 60, 900),
    "1w": PlotRange("1 week", timedelta(weeks=1), 900, 5400),
    "5w": PlotRange("5 weeks", timedelta(weeks=5), 5400, 27_000),
}
USUAL: RangeName = "15min"


class RangePart(NamedTuple):
    """A part of a range; ``sample`` is None where no monitor ran."""

    began_at: datetime
    ended_at: datetime
    sample: Sample | None


def parts_of(samples: Sequence[Sample], range_: PlotRange, now: datetime) -> Iterator[RangePart]:
    """Cut a range into parts of equal length, each with what the samples of its time came to together.

    A sample that is longer than a part fills all parts whose middle lies in it.
    """
    since, length = range_.since(now), timedelta(seconds=range_.part)
    found: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.observed:
            first, last = (sample.began_at - since) / length, (sample.ended_at - since) / length
            middles = range(round(first), round(last))
            for number in {int((first + last) // 2), *middles}:
                found[number].append(sample)
    for number in range(round((range_.until(now) - since) / length)):
        began_at = since + number * length
        joined = join(found[number], range_.part, began_at) if number in found else None
        yield RangePart(began_at, began_at + length, joined)


NO_LAG = RoleLag(0, 0.0, 0)
NONE_DELIVERED = Delivered(0, 0)


def draw_plots(samples: Sequence[Sample], range_: PlotRange, now: datetime) -> list[LinePlot]:
    """Draw the samples of a range."""
    parts = [*parts_of(samples, range_, now)]
    since, until = range_.since(now), range_.until(now)
    received = _values(parts, lambda it: (it.items / it.observed, _rates(it)))
    late = _values(parts, lambda it: (it.lag_seconds, ""))
    lacking = _values(parts, lambda it: (it.lag, f"{it.parked:,} parked"))
    return [
        plot("received", "Items received each second", NUMBER, received, since, until),
        plot("late", "Age of the oldest envelope that a role lacks", SECONDS, late, since, until),
        plot("lacking", "Envelopes that roles lack", NUMBER, lacking, since, until),
    ]


def draw_role_plots(samples: Sequence[Sample], role_id: int, range_: PlotRange, now: datetime) -> list[LinePlot]:
    """Draw what was delivered to a role in a range, and how far it was behind."""
    parts = [*parts_of(samples, range_, now)]
    since, until = range_.since(now), range_.until(now)

    def delivered(sample: Sample) -> tuple[float, str]:
        number = sample.delivered.get(role_id, NONE_DELIVERED)
        return number.items / sample.observed, f"{number_text(number.envelopes / sample.observed)} envelopes/s"

    def lag(sample: Sample) -> RoleLag:
        return sample.roles.get(role_id, NO_LAG)

    brought = _values(parts, delivered)
    late = _values(parts, lambda it: (lag(it).lag_seconds, ""))
    lacking = _values(parts, lambda it: (lag(it).lag, f"{lag(it).parked:,} parked"))
    return [
        plot("delivered", "Items delivered each second", NUMBER, brought, since, until),
        plot("late", "Age of the oldest envelope that it lacks", SECONDS, late, since, until),
        plot("lacking", "Envelopes that it lacks", NUMBER, lacking, since, until),
    ]


def _values(parts: Sequence[RangePart], of_sample: Callable[[Sample], tuple[float, str]]) -> list[PlotValue]:
    """Make a value of each part, with more words about it; a part in which no monitor ran has none."""
    return [
        PlotValue(began_at, ended_at, *((None, "") if sample is None else of_sample(sample)))
        for began_at, ended_at, sample in parts
    ]


def _rates(sample: Sample) -> str:
    events, envelopes = sample.events / sample.observed, sample.envelopes / sample.observed
    return f"{number_text(events)} events/s, {number_text(envelopes)} envelopes/s"


MOST_IDLE_EDGES = 150
"""With more ways from emitters to types only those are drawn on which something came: all would be a thicket."""

LATE_SECONDS = 1.0
"""A role that is less behind than this is on time."""

_EVENTS = rate_of("events")


def draw_bus(now: BusNow) -> BusDrawing:
    """Draw the bus as it is."""
    columns, edges = graph_of(now)
    return draw(columns, edges)


def graph_of(now: BusNow) -> tuple[Sequence[GraphColumn], Mapping[tuple[str, str], float]]:
    """Make the columns of the graph, and what passes between their nodes each second."""
    outline = now.outline
    rates = now.event_rates
    of_emitter, of_type = _added(rates, lambda pair: pair[0]), _added(rates, lambda pair: pair[1])
    through = _through(outline, of_type)
    depths = _depths(outline)
    paused = {(pause.kind, pause.subject_id): pause.told for pause in now.attention.pauses}
    emitters = [
        _sender(
            f"e{key}",
            outline.own_emitters.get(key, "emitter"),
            login,
            of_emitter[key],
            paused.get((PauseKind.EMITTER, key)),
        )
        for key, login in _by_name(outline.emitters)
    ]
    types = [
        _sender(f"t{key}", "type", name, of_type[key], paused.get((PauseKind.TYPE, key)), _nowhere(now, key))
        for key, name in _by_name(outline.types)
    ]
    readers = [_reader(reader, now, _rate_of(reader, of_type), paused) for reader in now.readers]
    services = [*_services(now, through, {key for kind, key in paused if kind is PauseKind.SERVICE})]
    deepest = max(depths.values(), default=0)
    columns = [
        GraphColumn("Emitters", emitters, "/configuration"),
        GraphColumn("Event types", types, "/configuration"),
        *(
            GraphColumn(
                "Workers", [node for key, node in services if node.kind == "worker" and depths.get(key, 1) == depth]
            )
            for depth in range(1, deepest + 1)
        ),
        GraphColumn("Consumers", [node for _, node in services if node.kind == "consumer"], "/recipients"),
        *([GraphColumn("Readers", readers, "/readers")] if readers else ()),
    ]
    return columns, {**_sent(outline, rates), **_passed(outline, of_type), **_read(now, of_type)}


def _sender(key: str, kind: str, name: str, rate: float, pause: str | None, wrong: str = "") -> GraphNode:
    told = [f"{kind} {name}: {_EVENTS.write(rate)}", pause or "", wrong]
    # The role of a node that emits has its name, and the emitter of a bot that of the bot behind a prefix.
    page = "recipients" if kind == "node" else f"{kind}s"
    address = f"/{page}/{quote(name.removeprefix(OF_BOTS) if kind == 'bot' else name, safe='')}"
    tone = "busy" if pause or (wrong and rate) else ""
    figure = "paused" if pause else f"{number_text(rate)}/s" if rate else ""
    return GraphNode(key, kind, GraphRow(name, address, tone, figure, "; ".join(filter(None, told))), weight=rate)


def _reader(reader: ReaderFigures, now: BusNow, rate: float, paused: Mapping[tuple[PauseKind, int], str]) -> GraphNode:
    pause = paused.get((PauseKind.SERVICE, reader.service_id))
    lag = 0.0 if reader.waits_since is None else (now.at - reader.waits_since).total_seconds()
    is_late = lag >= LATE_SECONDS
    figure = "paused" if pause else f"{span_text(lag)} late" if is_late else ""
    tone = "busy" if pause or (is_late and not reader.programs) else ""
    told = [
        f"reader {reader.name}: {counted(reader.programs, 'program')}",
        f"the oldest event that it has not read was sealed {span_text(lag)} ago" if is_late else "",
        f"{reader.skipped:,} envelopes were removed before it read them" if reader.skipped else "",
        pause or "",
    ]
    address = f"/readers/{quote(reader.name, safe='')}"
    row = GraphRow(reader.name, address, tone, figure, "; ".join(filter(None, told)))
    return GraphNode(f"r{reader.service_id}", "reader", row, weight=rate)


def _rate_of(reader: ReaderFigures, of_type: Mapping[int, float]) -> float:
    return sum(of_type.get(type_id, 0.0) for type_id in reader.types)


def _read(now: BusNow, of_type: Mapping[int, float]) -> dict[tuple[str, str], float]:
    """The ways from types to readers."""
    return {
        (f"t{type_id}", f"r{reader.service_id}"): of_type.get(type_id, 0.0)
        for reader in now.readers
        for type_id in reader.types
        if type_id in now.outline.types
    }


def _nowhere(now: BusNow, type_id: int) -> str:
    is_read = any(type_id in reader.types for reader in now.readers)
    return "" if is_read or now.outline.ways.get(type_id) else "it leads to no service, and nobody reads it"


def _services(now: BusNow, through: Mapping[int, float], paused: set[int]) -> Iterator[tuple[int, GraphNode]]:
    roles: defaultdict[int, list[RoleFigures]] = defaultdict(list)
    for role in now.roles:
        roles[role.service_id].append(role)
    for key, service in sorted(now.outline.services.items(), key=lambda each: each[1].name):
        rate = through[key]
        kind = "worker" if service.is_worker else "consumer"
        without = "it has no role" if not roles[key] else ""
        about = "; ".join(filter(None, (f"{kind} service {service.name}: {_EVENTS.write(rate)}", without)))
        figure = "paused" if key in paused else f"{number_text(rate)}/s" if rate else ""
        head = GraphRow(service.name, "/recipients", "busy" if without and rate else "", figure, about)
        yield key, GraphNode(f"s{key}", kind, head, [_role(role, now.at) for role in roles[key]], rate)


def _role(role: RoleFigures, now: datetime) -> GraphRow:
    arrears = role.arrears(now)
    is_late = role.lag > 0 and arrears.lag_seconds >= LATE_SECONDS
    tone = TONE_OF.get(role.state, Tone.GOOD)
    figure = "" if tone is Tone.GOOD else role.state.value
    if arrears.parked:
        figure = f"{number_text(arrears.parked)} parked"
    elif is_late:
        figure = f"{span_text(arrears.lag_seconds)} late"
    told = [
        f"role {role.login}: {role.state.value}",
        f"for {age(role.since, now)}" if role.since else "",
        f"lacks {role.lag:,} envelopes, the oldest sealed {span_text(arrears.lag_seconds)} ago" if role.lag else "",
        f"{role.parked:,} envelopes parked" if role.parked else "",
        f"{role.parked_items:,} items parked" if role.parked_items else "",
    ]
    drawn = Tone.BAD if arrears.parked else "" if tone is Tone.GOOD else tone
    return GraphRow(
        role.login, f"/recipients/{quote(role.login, safe='')}", drawn, figure, ", ".join(filter(None, told))
    )


def _by_name(names: Mapping[int, str]) -> list[tuple[int, str]]:
    return sorted(names.items(), key=lambda each: each[1])


def _added(rates: Mapping[tuple[int, int], float], key: Callable[[tuple[int, int]], int]) -> Mapping[int, float]:
    added: defaultdict[int, float] = defaultdict(float)
    for pair, rate in rates.items():
        added[key(pair)] += rate
    return added


def _sent(outline: BusOutline, rates: Mapping[tuple[int, int], float]) -> dict[tuple[str, str], float]:
    """The ways from emitters to types."""
    allowed = [(emitter, type_) for emitter, types in outline.sends.items() for type_ in types]
    sent = dict.fromkeys(allowed if len(allowed) <= MOST_IDLE_EDGES else [], 0.0)
    return {(f"e{emitter}", f"t{type_}"): rate for (emitter, type_), rate in {**sent, **rates}.items()}


def _passed(outline: BusOutline, of_type: Mapping[int, float]) -> dict[tuple[str, str], float]:
    """The ways from types to services, and from service to service."""
    passed: defaultdict[tuple[str, str], float] = defaultdict(float)
    for type_id, ways in outline.ways.items():
        if type_id not in outline.types:
            continue
        for source, targets in ways.items():
            for target in targets:
                passed[f"t{type_id}" if source is None else f"s{source}", f"s{target}"] += of_type.get(type_id, 0.0)
    return passed


def _through(outline: BusOutline, of_type: Mapping[int, float]) -> Mapping[int, float]:
    """The events each second that come to each service."""
    through: defaultdict[int, float] = defaultdict(float)
    for type_id, ways in outline.ways.items():
        for service_id in {target for targets in ways.values() for target in targets}:
            through[service_id] += of_type.get(type_id, 0.0)
    return through


def _depths(outline: BusOutline) -> dict[int, int]:
    """The column of each worker service: behind those that come before it in the graph of any type."""
    depths: dict[int, int] = {}
    for ways in outline.ways.values():
        for service_id, depth in _depths_of(ways).items():
            if service_id in outline.services and outline.services[service_id].is_worker:
                depths[service_id] = max(depth, depths.get(service_id, 1))
    return depths


def _depths_of(ways: Ways) -> dict[int, int]:
    """The longest way to each service of a graph; a service that comes twice on a way is counted once."""
    depths: dict[int, int] = {}
    waiting = [(service_id, frozenset({service_id})) for service_id in ways.get(None, ())]
    while waiting:
        service_id, way = waiting.pop()
        if depths.get(service_id, 0) >= len(way):
            continue
        depths[service_id] = len(way)
        waiting += [(next_, way | {next_}) for next_ in ways.get(service_id, ()) if next_ not in way]
    return depths
