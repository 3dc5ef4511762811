"""``make demo-spark`` as its user meets it: all figures are right, whichever way the flights go, and they are drawn."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.demo import demo_folder, download_flights, figures
from tests.support.documentation import CHECKOUT
from tests.support.processes import module, run

FLIGHTS = "10000"
DEMO_SECONDS = 600.0


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return download_flights(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def folder(tmp_path: Path, download: Path) -> Iterator[Path]:
    with demo_folder(tmp_path, download, "run-spark") as folder:
        yield folder


@pytest.mark.parametrize("min_items", ["1000", "100000"], ids=["as a whole", "in batches"])
def test_all_figures_are_right(folder: Path, min_items: str) -> None:
    demo, where = module("examples.demo_spark"), ("--folder", folder, "--flights", FLIGHTS)
    options = ("--master", "local[2]", "--min-items", min_items)
    done = run(*demo, *where, *options, cwd=CHECKOUT, env={"DB": "", "MASTER": ""}, timeout=DEMO_SECONDS)

    assert done.returncode == 0, done.stderr
    assert figures(done.stdout) == {
        "rows sent": ("39,453", "ok"),
        "airlines stored": ("16", "ok"),
        "planes stored": ("3,322", "ok"),
        "weather stored": ("26,115", "ok"),
        "flights summed up": ("10,000", "ok"),
        "late departures": ("3,449", "ok"),
        "minutes late": ("93,154", "ok"),
        "seats of the departures": ("1,154,719", "ok"),
        "departures in rain or snow": ("308", "ok"),
        "airline months, each figure right": ("15", "ok"),
        "airline months that should not be": ("0", "ok"),
    }
    ElementTree.parse(folder / "run-spark" / "delays.svg")
