"""``make demo-spark`` as its user meets it: all figures are right, whichever way the flights go, and they are drawn."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from tests.support.documentation import CHECKOUT
from tests.support.processes import module, run

FLIGHTS = "10000"
DEMO_SECONDS = 300.0


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that has downloaded the flights already."""
    folder = tmp_path_factory.mktemp("demo")
    fetch = f"from pathlib import Path; from examples.demo.source import Source; Source(Path({str(folder)!r}))"
    done = run(sys.executable, "-c", fetch, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(tmp_path: Path, download: Path) -> Iterator[Path]:
    """Where a demo puts its files."""
    folder = tmp_path / "demo-output"
    shutil.copytree(download, folder / "download")
    yield folder
    left = [process.info for process in psutil.process_iter(["cwd", "cmdline"]) if _is_of(process, folder)]
    assert left == [], "a demo ends what it starts"


def _is_of(process: psutil.Process, folder: Path) -> bool:
    return bool(process.info["cwd"] == str(folder / "run-spark"))


def figures(told: str) -> dict[str, tuple[str, str]]:
    """What was found of each thing, and the verdict."""
    lines = [line.split() for line in told[told.index("WHAT ") :].split("\n\n")[0].splitlines()[1:]]
    return {" ".join(words[:-4]): (words[-2], words[-1]) for words in lines}


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
