"""What both demos are tested with: a folder that has the flights already, and the figures that a demo tells."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.documentation import CHECKOUT
from tests.support.processes import run
from tests.support.waiting import wait_until

DOWNLOAD_SECONDS = 300.0


def download_flights(folder: Path) -> Path:
    """The same folder, in which a demo has downloaded the flights: once is enough."""
    fetch = f"from pathlib import Path; from examples.demo.source import Source; Source(Path({str(folder)!r}))"
    done = run(sys.executable, "-c", fetch, cwd=CHECKOUT, timeout=DOWNLOAD_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def demo_folder(parent: Path, download: Path, run_folder: str) -> Iterator[Path]:
    """Where a demo puts its files, with the download there; nothing of the demo may run at the end.

    Args:
        parent: where the folder is made.
        download: a folder with the flights.
        run_folder: what the demo's programs work in.
    """
    folder = parent / "demo-output"
    shutil.copytree(download, folder / "download")
    yield folder
    # What Spark started ends by itself when it notices that Spark has, a moment later.
    wait_until(lambda: not _running_in(folder / run_folder), "a demo ends what it starts")


def _running_in(folder: Path) -> bool:
    """Whether programs work in a folder."""
    return any(process.info["cwd"] == str(folder) for process in psutil.process_iter(["cwd"]))


def figures(told: str) -> dict[str, tuple[str, str]]:
    """What a demo found of each thing, and its verdict."""
    table, _, _ = told[told.index("WHAT ") :].partition("\n\n")
    lines = [line.split() for line in table.splitlines()[1:]]
    return {" ".join(words[:-4]): (words[-2], words[-1]) for words in lines}
