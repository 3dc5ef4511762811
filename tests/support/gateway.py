"""The gateway for HTTP in a process of its own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
