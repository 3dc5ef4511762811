"""Metrics of a real broker, and all that is written about them: the page, the alert rules, the dashboard."""

import asyncio
import json
import os
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options, write_config
from tests.support.documentation import CHECKOUT
from tests.support.ports import free_port
from tests.support.processes import run, script
from tests.support.sdk import Keeps, emit, send_values
from tests.support.serving import serving
from tests.support.waiting import eventually, wait_until
from xbus.admin.why.inquiry import RunningBroker
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.roles import list_roles
from xbus.broker.journal.samples.sample import Delivered
from xbus.emitter import Emitter
from xbus.errors import XbusError

PAGE = (CHECKOUT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = CHECKOUT / "deploy" / "prometheus" / "xbus-alerts.yml"
DASHBOARD = CHECKOUT / "deploy" / "grafana" / "xbus.json"

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LISTED = {
    name: set(re.findall(r"`(\w+)`", cell))
    for names, cell in re.findall(r"^\| ((?:`[a-z0-9_]+`(?:, )?)+) \|([^|]*)\|", PAGE, re.MULTILINE)
    for name in re.findall(r"\b(?:xbus|process)_[a-z0-9_]+", names)
}
"""The metrics that the page lists, with their labels."""

HISTOGRAMS = {"xbus_commit_seconds", "xbus_commit_writes"}

NAME = re.compile(r"\b(?:xbus|process)_[a-z0-9_]+")
OF_HISTOGRAM = ("_bucket", "_count", "_sum")


@cache
def program(name: str) -> str:
    """Find a program of Prometheus, or skip the test."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"this machine has no {name}: make promtool fetches it")
    return found


@dataclass
class Scrape:
    """The metrics of a process at one moment.

    Attributes:
        types: the type of each metric by its name.
        labels: by the name of a metric the names of its labels.
        values: by the name of a sample and the values of its labels, in the order of their names.
    """

    types: dict[str, str]
    labels: dict[str, set[str]]
    values: dict[tuple[str, ...], float]


def metrics_of(options: Options | None = None) -> tuple[str, Options]:
    """An address for metrics, and the options of a broker that serves them there."""
    address = f"127.0.0.1:{free_port()}"
    return f"http://{address}", {**(options or {}), "metrics": {"listen": address}}


def get(url: str, accept: str = "") -> tuple[int, str]:
    """The status and the body of a page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def scrape(url: str) -> Scrape:
    """Read the metrics in both forms, which must have the same names."""
    text = get(f"{url}/metrics")[1]
    labels: dict[str, set[str]] = defaultdict(set)
    values: dict[tuple[str, ...], float] = {}
    for metric in read_text(text):
        for sample in metric.samples:
            labels[sample.name] |= sample.labels.keys()
            values[sample.name, *(label for _, label in sorted(sample.labels.items()))] = sample.value
    exact: Iterable[Metric] = read_openmetrics(get(f"{url}/metrics", OPENMETRICS)[1])  # type: ignore[no-untyped-call]
    assert {sample.name for metric in exact for sample in metric.samples} >= labels.keys()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return Scrape(types, labels, values)


@pytest.fixture
def bus(sqlite_url: str) -> str:
    add_bus(sqlite_url, {"numbers": {"sink": []}})
    return sqlite_url


async def test_a_scrape_shows_the_way_of_an_envelope(start_daemon: StartDaemon, bus: str, tmp_path: Path) -> None:
    limits: Options = {"journal": {"max_bytes": 10_000_000}, "health": {"interval": 0.2, "absent_minutes": 0}}
    url, options = metrics_of({**limits, "alerts": {"command": "true"}})
    daemon = start_daemon(bus, options)
    assert json.loads(daemon._ready_file.read_text())["metrics"] == url
    assert await asyncio.to_thread(get, f"{url}/readyz") == (
        200,
        '{\n  "ready": true,\n  "reasons": [],\n  "brokers": []\n}\n',
    )

    await emit(daemon, send_values([1, 2, 3]))
    before = await asyncio.to_thread(scrape, url)
    assert before.values["xbus_lag_envelopes", "sink_1"] == 1
    assert before.values["xbus_lag_seconds", "sink_1"] > 0
    assert before.values["xbus_recipients_up", "sink_1"] == 0
    assert before.values["xbus_deliveries_total", "done", "sink_1"] == 0

    consumer = Keeps()
    async with serving(daemon, "sink_1", consumer):
        await emit(daemon, send_values([4]))
        await eventually(lambda: len(consumer.committed) == 2, "both are delivered")
        await eventually(
            lambda: scrape(url).values["xbus_deliveries_total", "done", "sink_1"] == 2, "both deliveries are counted"
        )
        values = (await asyncio.to_thread(scrape, url)).values
    assert values["xbus_delivered_items_total", "sink_1"] == 4
    # The same for those who come without Prometheus, such as xbus top.
    with reading(bus) as connection:
        role_id = list_roles(connection, "sink_1")[0].role_id
    counted = await asyncio.to_thread(RunningBroker(daemon.config).delivered, [role_id, 10**9])
    assert counted == {role_id: Delivered(2, 4)}
    assert values["xbus_received_envelopes_total", "emitter_1"] == 2
    assert values["xbus_received_events_total", "numbers"] == 2
    assert values["xbus_received_items_total", "numbers"] == 4
    assert values["xbus_received_bytes_total", "emitter_1"] == values["xbus_stored_bytes_total",] > 4
    assert values["xbus_received_envelopes_total", "emitter_2"] == 0
    assert values["xbus_recipients_up", "sink_1"] == 1
    assert values["xbus_log_position",] == 2
    assert values["xbus_commit_seconds_count",] == values["xbus_commit_writes_bucket", "+Inf"] > 0
    assert values["xbus_journal_item_limit_bytes",] == 10_000_000
    assert values["xbus_journal_disk_bytes",] > 0
    assert values["process_resident_memory_bytes",] > 10_000_000

    # A refusal and a problem.
    with pytest.raises(XbusError, match="no_such_type"):
        await emit(daemon, send_to_no_type)
    await emit(daemon, send_values([5]))
    await eventually(lambda: ("xbus_problems", "consumer_absent") in scrape(url).values, "the problem is shown")
    after = await asyncio.to_thread(scrape, url)
    assert after.values["xbus_refused_calls_total", "unknown_type", "front"] >= 1
    assert_listed(after)
    # A problem that a restart does not cure makes nobody restart it.
    status, told = await asyncio.to_thread(get, f"{url}/healthz")
    assert (status, json.loads(told)["alive"], json.loads(told)["healthy"]) == (200, True, False)
    assert (await asyncio.to_thread(get, f"{url}/readyz"))[0] == 200

    # The same address again, and the same journal.
    config = write_config(tmp_path / "second.ini", bus, options)
    refused = await asyncio.to_thread(run, script("start_xbusbroker"), "-c", config)
    last = refused.stderr.splitlines()[-1]
    assert (refused.returncode, "[metrics] listen" in last, last.endswith("[address_in_use]")) == (1, True, True)
    # The first one goes on: the second ended before it took over the journal.
    await emit(daemon, send_values([6]))


def send_to_no_type(emitter: Emitter) -> None:
    with emitter.envelope() as envelope, envelope.event("no_such_type") as event:
        event.send(1)


def assert_listed(shown: Scrape) -> None:
    """The page lists all metrics and no others, and those of their labels that are there."""
    assert sorted(LISTED) == sorted(shown.types)
    assert {name: LISTED[name] for name in shown.labels if name in LISTED} == {
        name: labels for name, labels in shown.labels.items() if name in LISTED
    }


async def test_front_and_back_in_two_processes_serve_their_own(start_daemon: StartDaemon, postgres_url: str) -> None:
    add_bus(postgres_url, {"numbers": {"sink": []}})
    bell: Options = {"zmq": {"b2fsocket": f"tcp://127.0.0.1:{free_port()}"}}
    urls = {}
    daemons: dict[str, Daemon] = {}
    for part in ("back", "front"):
        urls[part], options = metrics_of(bell)
        daemons[part] = start_daemon(postgres_url, options, only=part)
    await emit(daemons["front"], send_values([1, 2]))
    front, back = scrape(urls["front"]), scrape(urls["back"])
    assert front.values["xbus_received_items_total", "numbers"] == 2
    assert back.values["xbus_lag_envelopes", "sink_1"] == 1
    assert back.values["xbus_journal_disk_bytes",] > 1_000_000
    assert front.values.keys() >= {("xbus_build_info", "front", version("xbusd")), ("xbus_open_envelopes",)}
    assert not {name for name, *_ in front.values} & {"xbus_lag_seconds", "xbus_recipients_up"}
    assert not {name for name, *_ in back.values} & {"xbus_open_envelopes"}


# -- what is written about them ----------------------------------------------------------------------------------------


def queries() -> dict[str, list[str]]:
    """The expressions of the alert rules and of the dashboard, by where they are."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        "rules": re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.MULTILINE),
        "dashboard": [target["expr"] for panel in panels for target in panel.get("targets", ())],
    }


@pytest.mark.parametrize("place", ["rules", "dashboard"])
def test_rules_and_dashboard_name_metrics_that_exist(place: str) -> None:
    histograms = {f"{name}{end}" for name in HISTOGRAMS for end in OF_HISTOGRAM}
    named = {name for query in queries()[place] for name in NAME.findall(query)}
    assert named
    assert named - LISTED.keys() - histograms == set()


def test_rules_and_dashboard_name_labels_that_exist() -> None:
    known = {"instance", "le", "job", *(label for labels in LISTED.values() for label in labels)}
    for query in [*queries()["rules"], *queries()["dashboard"]]:
        compared = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)
        grouped = re.findall(r"\w+", " ".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", query)))
        assert {*compared, *grouped} <= known, query


def test_each_metric_of_ours_is_in_a_rule_or_on_the_dashboard() -> None:
    named = {name for found in queries().values() for query in found for name in NAME.findall(query)}
    named |= {name.removesuffix(end) for name in named for end in OF_HISTOGRAM}
    ours = {name for name in LISTED if name.startswith("xbus_")}
    assert ours - named == {"xbus_journal_up", "xbus_left_out_samples"}


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for command, file in (("rules", RULES), ("config", RULES.with_name("prometheus.yml"))):
        checked = run(program("promtool"), "check", command, file)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"query_{number}", "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for number, query in enumerate(queries()["dashboard"])
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = run(program("promtool"), "check", "rules", "--lint=none", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_panels_of_the_dashboard_fit_side_by_side() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)


def test_a_real_prometheus_scrapes_the_broker(
    start_daemon: StartDaemon, start_process: StartProcess, bus: str, tmp_path: Path
) -> None:
    prometheus = program("prometheus")
    url, options = metrics_of()
    start_daemon(bus, options)
    config = tmp_path / "prometheus.yml"
    text = RULES.with_name("prometheus.yml").read_text()
    text = text.replace("127.0.0.1:9180", url.removeprefix("http://")).replace("15s", "1s")
    config.write_text(text.replace(RULES.name, str(RULES)))
    listen = f"127.0.0.1:{free_port()}"
    start_process(
        prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={listen}",
    )

    def has_scraped() -> bool:
        try:
            told = json.loads(get(f"http://{listen}/api/v1/query?query=xbus_recipients_up")[1])
        except (OSError, ValueError):
            return False
        results = told["data"]["result"]
        return any(result["metric"]["role"] == "sink_1" and result["value"][1] == "0" for result in results)

    wait_until(has_scraped, "Prometheus has the figures of the broker")
    targets = json.loads(get(f"http://{listen}/api/v1/targets")[1])["data"]["activeTargets"]
    assert [(target["health"], target["lastError"]) for target in targets] == [("up", "")]
