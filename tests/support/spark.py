"""Spark for tests and benchmarks: settings of small sessions, and a standalone cluster out of PySpark's own package."""

import json
import os
import sys
import urllib.request
from collections.abc import Collection, Mapping
from http.client import HTTPException
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.waiting import wait_until

LOOPBACK = "127.0.0.1"
SECONDS = 480.0
"""Each wait for a program of Spark has this time, because other tests may keep both cores busy for minutes."""

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def settings(folder: Path, memory: str = "512m") -> dict[str, str]:
    """Settings of a session of this machine alone, which leaves its files in a folder.

    Args:
        folder: for tables and what does not fit into memory.
        memory: the largest heap of the driver, as Java says it.
    """
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder / "spark-local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def environment() -> dict[str, str]:
    """What Spark reads from the environment: its Python is ours, and it speaks to this machine alone."""
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}


class Cluster:
    """A master and its workers, each a process with one core, from ``with`` to the end of the block.

    A session joins it by its ``url`` from a process of its own: a process has only one Spark context.

    Args:
        folder: for logs and the files of executors; is made.
        workers: how many there are.
        memory: of each worker, for its executors.
        is_pinned: whether a worker and all that it starts, the Pythons too, have one core of this machine and no more,
            like a machine with a single one.
    """

    def __init__(self, folder: Path, workers: int = 2, memory: str = "1g", is_pinned: bool = False) -> None:
        self._folder = folder
        self._is_pinned = is_pinned
        self._memory = memory
        self._port = free_port()
        self._web_port = free_port()
        self._master: Process | None = None
        self._workers: list[Process] = []
        self._wanted = workers
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """As ``--master`` takes it."""
        return f"spark://{LOOPBACK}:{self._port}"

    @property
    def text(self) -> str:
        """What all of it has written so far."""
        return "\n".join(log.read_text(errors="replace") for log in sorted(self._folder.glob("*.log")))

    def __enter__(self) -> "Cluster":
        try:
            self.start_master()
            for number in range(1, self._wanted + 1):
                self._workers.append(self._start_worker(number))
            wait_until(lambda: self.alive_workers() == self._wanted, "the workers have joined the cluster", SECONDS)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start_master(self) -> None:
        """Start it, also again after :meth:`kill_master`: workers and sessions find it under the same URL."""
        options = ("--host", LOOPBACK, "--port", str(self._port), "--webui-port", str(self._web_port))
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", *options)
        wait_until(lambda: self._state() is not None, "the master of the cluster is up", SECONDS)

    def kill_master(self) -> None:
        """End the master on the spot; nobody can join any more."""
        if self._master is not None:
            self._master.kill()
            self._master = None

    def alive_workers(self) -> int:
        """How many workers the master counts on."""
        state = self._state()
        return 0 if state is None else sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, of all sessions."""
        return [child for worker in self._workers for child in _children(worker.pid) if _is_executor(child)]

    def executors_with(self, pids: Collection[int]) -> list[psutil.Process]:
        """Those of the executors whose Pythons, or any of them, have these ids."""
        return [each for each in self.executors() if any(child.pid in pids for child in _children(each.pid))]

    def kill(self) -> None:
        """End all of it on the spot, executors and their Pythons too."""
        offspring = [child for worker in self._workers for child in _children(worker.pid)]
        for process in [*self._workers, *([self._master] if self._master else [])]:
            process.kill()
        for child in offspring:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(offspring, timeout=10)
        self._workers, self._master = [], None

    def _start_worker(self, number: int) -> Process:
        options = ("--host", LOOPBACK, "--webui-port", str(free_port()), "--cores", "1", "--memory", self._memory)
        worker = self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *options, self.url)
        if self._is_pinned:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(worker.pid, {cores[number % len(cores)]})
        return worker

    def _start(self, name: str, program: str, *arguments: str) -> Process:
        command = (str(SPARK_CLASS), program, *arguments)
        return Process(*command, output=self._folder / f"{name}.log", cwd=self._folder, env=self._environment())

    def _environment(self) -> Mapping[str, str]:
        return {
            **environment(),
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_WORKER_DIR": str(self._folder / "work"),
        }

    def _state(self) -> dict[str, list[dict[str, str]]] | None:
        try:
            # Spark answers 404 without the last slash.
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._web_port}/json/", timeout=10) as answer:
                state: dict[str, list[dict[str, str]]] = json.load(answer)
                return state
        except (OSError, HTTPException, ValueError):  # while it starts, its first page stands in the place of this one
            return None


def use_environment() -> None:
    """Let the session that this process makes next run on this machine alone, with this Python."""
    os.environ.update(environment())


def _children(pid: int) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return children


def _is_executor(process: psutil.Process) -> bool:
    try:
        return EXECUTOR in process.cmdline()
    except psutil.Error:
        return False
