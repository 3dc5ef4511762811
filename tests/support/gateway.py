"""The gateway for HTTP in a process of its own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.waiting import wait_until

READY_SECONDS = 60.0


@contextmanager
def serving_http(config: Path) -> Iterator[str]:
    """Run the gateway of a configuration; its address."""
    ready = config.with_name("http.json")
    ready.unlink(missing_ok=True)
    process = Process(
        script("start_xbushttp"), "-c", config, "--ready-file", ready, output=config.with_name("http.log")
    )
    try:

        def is_ready() -> bool:
            assert process.runs, f"the gateway ended:\n{process.text}"
            return ready.exists()

        wait_until(is_ready, "the gateway is ready", READY_SECONDS)
        yield json.loads(ready.read_text())["http"]
        assert process.stop() == 0, process.text
    finally:
        process.kill()


class Gate:
    """A gateway that is killed, and comes back at the same address.

    Args:
        config: of the broker; the gateway gets one of its own, beside it.
        name: of its files.
    """

    def __init__(self, config: Path, name: str) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        self._config = config.with_name(f"{name}.ini")
        self._log = config.with_name(f"{name}.log")
        text = config.read_text()
        listen = f"listen = {self.address.removeprefix('http://')}"
        self._config.write_text(text.replace("listen = 127.0.0.1:0", listen))
        self._process: Process | None = None

    def start(self) -> "Gate":
        """Start it and come back when it serves."""
        ready = self._config.with_suffix(".json")
        ready.unlink(missing_ok=True)
        options = ("-c", self._config, "--ready-file", ready)
        self._process = process = Process(script("start_xbushttp"), *options, output=self._log)

        def is_ready() -> bool:
            assert process.runs, f"the gateway ended:\n{process.text}"
            return ready.exists()

        wait_until(is_ready, "the gateway is ready", READY_SECONDS)
        return self

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "the gateway was not started"
        return self._process.pid

    def kill(self) -> None:
        """End it with SIGKILL: a crash."""
        if self._process is not None:
            self._process.kill()
