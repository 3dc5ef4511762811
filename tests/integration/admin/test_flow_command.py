"""``xbus flow run``: a whole graph over the items of a file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.integration.admin.conftest import Xbus
from tests.support.documentation import CHECKOUT
from xbus.admin.cli import main

BUS = """
[[event_type]]
name = "orders"
[[event_type.node]]
name = "enrich"
service = "enricher"
to = ["priced", "store"]
[[event_type.node]]
name = "priced"
emits = "orders_priced"
[[event_type.node]]
name = "store"
service = "store"
[[event_type]]
name = "orders_priced"
[[event_type]]
name = "totals"
[[event_type.node]]
name = "print"
service = "printer"

[[service]]
name = "enricher"
kind = "worker"
[[service]]
name = "store"
kind = "consumer"
[[service]]
name = "printer"
kind = "consumer"
[[service]]
name = "runners"
kind = "runner"
[[role]]
login = "enricher_1"
service = "enricher"
[[role]]
login = "store_1"
service = "store"
[[role]]
login = "printer_1"
service = "printer"
[[role]]
login = "runner_1"
service = "runners"

[[reader]]
name = "billing"
event_types = ["orders_priced"]
[[bot]]
name = "totals"
call = "flow_shop:totals"
reads = ["orders_priced"]
emits = ["totals"]

[[emitter_profile]]
name = "shop"
event_types = ["orders"]
[[emitter]]
login = "shop_1"
profile = "shop"
"""

MODULE = """
from xbus.recipient import Consumer, Refusal, Worker


class Enrich(Worker):
    def on_item(self, event, item):
        return {"euro": int(item.value["amount"]) / 100}


class Picky(Consumer):
    def on_item(self, event, item):
        print("seen", item.value)
        raise Refusal("never")


def totals(batch, out):
    out.put("totals", [sum(item.value["euro"] for item in batch.items)])
"""


@pytest.fixture
def xbus() -> Xbus:
    """Runs ``xbus`` without a configuration: the command needs none."""

    def run(*arguments: str | Path, stdin: str = "") -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, prog_name="xbus")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bus, its code, and orders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("bus.toml").write_text(BUS)
    Path("flow_shop.py").write_text(MODULE)
    Path("orders.csv").write_text("client,amount\nada,100\ngrace,250\n")
    return tmp_path


ENRICH = ("--role", "enricher=flow_shop:Enrich")


def test_each_hop_is_shown_through_types_and_bots(xbus: Xbus, shop: Path) -> None:
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "orders: 2 items from orders.csv",
            "  enrich -> worker enricher: 2 items, 2 out",
            "  priced -> orders_priced: 2 items",
            "  store -> consumer store: 2 items",
            '    {"euro": 1.0}',
            '    {"euro": 2.5}',
            "orders_priced:",
            "  -> bot totals: 2 items, 1 out",
            "  -> reader billing: 2 items",
            "totals:",
            "  print -> consumer printer: 1 item",
            "    3.5",
        ],
    )


def test_outputs_go_into_files(xbus: Xbus, shop: Path) -> None:
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH, "--out", "out", "-o", "json")
    hops = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(hop["kind"], hop["name"], hop["items"], hop["items_out"]) for hop in hops] == [
        ("worker", "enricher", 2, 2),
        ("emits", "orders_priced", 2, 2),
        ("consumer", "store", 2, None),
        ("bot", "totals", 2, 1),
        ("reader", "billing", 2, None),
        ("consumer", "printer", 1, None),
    ]
    assert hops[2]["file"] == "out/store.jsonl"
    assert Path("out/store.jsonl").read_text() == '{"euro": 1.0}\n{"euro": 2.5}\n'
    assert Path("out/printer.jsonl").read_text() == "3.5\n"


def test_an_exception_is_shown_with_its_line_and_its_item(xbus: Xbus, shop: Path) -> None:
    Path("orders.csv").write_text("client,amount\nada,100\ngrace,many\n")
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH)
    assert result.exit_code == 1
    fault, line, item, summary = result.stderr.splitlines()
    assert fault.startswith("enricher_1: ValueError: invalid literal")
    assert "flow_shop.py:7, in on_item: return" in line
    assert item == "item 1 of orders: {'client': 'grace', 'amount': 'many'}"
    assert "[flow_failed]" in summary
    assert "store -> consumer store: 0 items" in result.stdout


def test_a_refusal_and_a_bot_that_fails_end_with_1(xbus: Xbus, shop: Path) -> None:
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH, "--role", "store=flow_shop:Picky")
    assert result.exit_code == 1
    assert "store_1: Refusal: never" in result.stderr
    assert "seen" in result.stderr
    assert "seen" not in result.stdout

    Path("bus.toml").write_text(BUS.replace("flow_shop:totals", "flow_shop:missing"))
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH)
    assert result.exit_code == 1
    assert '"missing" in flow_shop is no function' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "recipient_wanted"),
        (("--role", "enricher=flow_shop:Nobody"), "no recipient"),
        (("--role", "enricher"), "service=module:Class"),
        ((*ENRICH, "--role", "nobody=flow_shop:Enrich"), "unknown_service"),
        ((*ENRICH, "--type", "nothing"), "nothing"),
    ],
)
def test_wrong_options_are_refused(xbus: Xbus, shop: Path, arguments: tuple[str, ...], words: str) -> None:
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *arguments)
    assert result.exit_code in (1, 2)
    assert words in result.stderr


def test_a_bad_line_and_a_bad_bus_file_are_refused(xbus: Xbus, shop: Path) -> None:
    Path("orders.csv").write_text("client,amount\nada,1,2,3\n")
    assert "orders.csv:2" in xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH).stderr
    Path("orders.csv").write_text("client,amount\nada,1\n")
    Path("bus.toml").write_text(BUS.replace('to = ["priced", "store"]', 'to = ["nowhere"]'))
    result = xbus("flow", "run", "bus.toml", "--in", "orders.csv", *ENRICH)
    assert (result.exit_code, "bus.toml:" in result.stderr, "nowhere" in result.stderr) == (1, True, True)


def test_the_type_may_be_the_only_one(xbus: Xbus, shop: Path) -> None:
    Path("orders.csv").rename("november.csv")
    assert (
        "orders: 2 items from november.csv" in xbus("flow", "run", "bus.toml", "--in", "november.csv", *ENRICH).stdout
    )


def test_the_example_of_chained_types_runs(xbus: Xbus, shop: Path) -> None:
    Path("o.jsonl").write_text('{"amount": 1}\n{"amount": -2}\n')
    bus = str(CHECKOUT / "examples" / "chaining" / "bus.toml")
    role = ("--role", "splitter=examples.chaining.splitter:Splitter")
    result = xbus("flow", "run", bus, "--in", "o.jsonl", *role)
    assert result.exit_code == 0
    assert '    {"amount": -2}' in result.stdout.splitlines()
