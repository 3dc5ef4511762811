"""A file from an SDK emitter to an SDK consumer that saves it, by an object store: MB/s, until it is committed.

Floor: the file is copied twice, each time with fsync: into files of 4 MiB by four threads, and from these into one, as
everybody must who keeps it in between. ``objects_off_mb_s`` is the rate without an object store. Beside the
broker's seconds of the processor stand those of the floor, which writes the file once more than the broker does.
"""

import os
import resource
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import IO

from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import MOST_SECONDS, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.waiting import wait_until

MB = 10**6
PIECE = 4 * 1024 * 1024
THREADS = 4


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds with a store and without, and of the bare disk, in turns."""
    rounds = [_round(databases, sizes.file_mb * MB) for _ in range(sizes.rounds)]
    with_store, without, floors, cpu, floor_cpu = (median(each) for each in zip(*rounds, strict=True))
    more = {"objects_off_mb_s": without, "broker_cpu_s_per_gb": cpu, "floor_cpu_s_per_gb": floor_cpu}
    return Result(with_store, floors, "MB/s", more)


def _round(databases: Databases, size: int) -> tuple[float, float, float, float, float]:
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as name:
        folder = Path(name)
        source = folder / "source"
        with source.open("wb") as file:
            for start in range(0, size, PIECE):
                file.write(os.urandom(min(PIECE, size - start)))
        stored, cpu = _send(databases, folder, {"objects": folder / "objects"})
        shutil.rmtree(folder / "objects")
        plain, _ = _send(databases, folder, {})
        before = _own_cpu_seconds()
        floor = _write(source, folder)
        floor_cpu = _own_cpu_seconds() - before
    gigabytes = size / 1e9
    return size / MB / stored, size / MB / plain, size / MB / floor, cpu / gigabytes, floor_cpu / gigabytes


def _own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _send(databases: Databases, folder: Path, journal: dict[str, object]) -> tuple[float, float]:
    """Seconds until the file is committed, and of the broker's processor."""
    target = folder / "target"
    with databases() as url, running_bus(url, options={"journal": journal}) as daemon:
        pid = daemon.pid
        with running("saves", daemon.back, target) as consumer:
            wait_until(lambda: "recipient registered" in daemon.log, "the consumer is registered")
            before = cpu_seconds(pid)
            with running("sends_file", daemon.front, folder / "source") as emitter:
                assert emitter.wait(MOST_SECONDS) == 0, emitter.text
                began = float(reports(emitter)[-1]["began"])
            wait_until(lambda: len(reports(consumer)) == 1, "the file is saved", MOST_SECONDS)
            cpu = cpu_seconds(pid) - before
            seconds = float(reports(consumer)[-1]["at"]) - began
    assert target.stat().st_size == (folder / "source").stat().st_size
    target.unlink()
    return seconds, cpu


def _write(source: Path, folder: Path) -> float:
    """Seconds for writing the file as it must be written on its way."""
    size = source.stat().st_size
    starts = range(0, size, PIECE)

    def put(start: int) -> None:
        with source.open("rb") as read, (folder / f"object{start}").open("wb") as file:
            read.seek(start)
            _sync(file, read.read(PIECE))

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(put, starts))
    with (folder / "whole").open("wb") as file:
        for start in starts:
            file.write((folder / f"object{start}").read_bytes())
        _sync(file, b"")
    seconds = time.perf_counter() - began
    for path in (folder / "whole", *folder.glob("object*")):
        path.unlink()
    return seconds


def _sync(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
