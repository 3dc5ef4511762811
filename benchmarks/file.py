"""The file from an SDK emitter to an SDK consumer that saves it, by an object store: MB/s, until it is committed.

Floor: the bare disk. The file is copied twice past the page cache, each time with fsync: into files of 4 MiB by four
threads, and from these into one, as everybody must who keeps it in between. ``cached_floor_mb_s`` is that through
the page cache, ``loopback_mb_s`` is what pyzmq carries in frames of 4 MiB. ``objects_off_mb_s`` is the rate without an
object store. Beside the broker's seconds of the processor stand those of the floor.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

import zmq

from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.processes import cpu_seconds
from benchmarks.programs.running import MOST_SECONDS, reports, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.waiting import wait_until
from xbus.system.direct import DirectBuffers, DirectFile, read_direct

MB = 10**6
PIECE = 4 * 1024 * 1024
THREADS = 4


class _Round(NamedTuple):
    """The rates of one round, in MB/s, and the seconds of the processor for a gigabyte."""

    stored: float
    plain: float
    floor: float
    cached_floor: float
    loopback: float
    cpu: float
    floor_cpu: float


def measure(databases: Databases, sizes: Sizes) -> Result:
    """Rounds with a store and without, of the bare disk and of loopback, in turns."""
    rounds = [_round(databases, sizes.file_mb * MB) for _ in range(sizes.rounds)]
    found = _Round(*(median(each) for each in zip(*rounds, strict=True)))
    more = {
        "objects_off_mb_s": found.plain,
        "cached_floor_mb_s": found.cached_floor,
        "loopback_mb_s": found.loopback,
        "broker_cpu_s_per_gb": found.cpu,
        "floor_cpu_s_per_gb": found.floor_cpu,
    }
    return Result(found.stored, found.floor, "MB/s", more)


def _round(databases: Databases, size: int) -> _Round:
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
        floor = _write(source, folder, _put_direct, _get_direct)
        floor_cpu = _own_cpu_seconds() - before
        cached = _write(source, folder, _put_cached, Path.read_bytes)
        loopback = _carry(size)
    rates = [size / MB / seconds for seconds in (stored, plain, floor, cached, loopback)]
    return _Round._make([*rates, cpu / size * 1e9, floor_cpu / size * 1e9])


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


def _write(
    source: Path, folder: Path, put: Callable[[Path, Iterable[bytes]], None], get: Callable[[Path], bytes]
) -> float:
    """Seconds for writing the file as it must be written on its way."""
    parts = [folder / f"object{start}" for start in range(0, source.stat().st_size, PIECE)]

    def put_part(number: int) -> None:
        with source.open("rb") as read:
            read.seek(number * PIECE)
            put(parts[number], [read.read(PIECE)])

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(put_part, range(len(parts))))
    put(folder / "whole", map(get, parts))
    seconds = time.perf_counter() - began
    for path in (folder / "whole", *parts):
        path.unlink()
    return seconds


def _put_cached(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


_buffers = DirectBuffers(THREADS)


def _put_direct(path: Path, pieces: Iterable[bytes]) -> None:
    with _buffers.lend() as buffer, DirectFile(path, buffer=buffer) as file:
        for piece in pieces:
            file.write(piece)
        file.sync()


def _get_direct(path: Path) -> bytes:
    with _buffers.lend() as buffer:
        return read_direct(path, buffer)


def _carry(size: int) -> float:
    """Seconds for carrying so many bytes over loopback by the bare library."""
    pieces, frame = -(-size // PIECE), bytes(PIECE)
    with zmq.Context() as context, context.socket(zmq.PULL) as taking, context.socket(zmq.PUSH) as giving:
        giving.linger = 0
        giving.set_hwm(4)
        giving.connect(f"tcp://127.0.0.1:{taking.bind_to_random_port('tcp://127.0.0.1')}")
        began = time.perf_counter()
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(lambda: [giving.send(frame, copy=False) for _ in range(pieces)])
            for _ in range(pieces):
                assert len(taking.recv(copy=False).buffer) == PIECE
            sending.result()
        return time.perf_counter() - began
