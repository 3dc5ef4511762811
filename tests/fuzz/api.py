"""``make fuzz-api``: schemathesis asks the monitor's REST interface for all that its description allows, and for more.

The monitor runs beside a broker, over a journal with parked envelopes and failures. The program fails at an internal
error, and at an answer that the description does not know.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.admin.parked_bus import make_parked_bus
from tests.support.browser import monitoring
from tests.support.daemon import Daemon
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.people import add_person, add_token
from xbus.clock import SystemClock
from xbus.rights import Right

PROGRAM = Path(sys.prefix) / "schemathesis" / "bin" / "schemathesis"
"""It has an environment of its own, so that what it needs changes no version that the tests run with."""

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance,ignored_auth"
"""A broker that is away is no fault of the monitor, and its 503 says so: only a 500 is."""


def main(seconds: str) -> int:
    """Ask for so many seconds, and give the exit code of schemathesis."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/xbus.db"
        schema.upgrade(url)
        make_parked_bus(url)
        daemon = Daemon(Path(folder) / "daemon", url, {"monitor": {"listen": "127.0.0.1:0"}}).start()
        try:
            with monitoring(daemon.config) as address:
                return _fuzz(address, _token(url), seconds)
        finally:
            daemon.stop()


def _token(url: str) -> str:
    """Make a token that may do everything."""
    now = SystemClock().now()
    with writing(url) as connection:
        person = add_person(connection, "fuzz", [*Right], None, now)
        return add_token(connection, person.id, "fuzz", [*Right], None, now)


def _fuzz(address: str, token: str, seconds: str) -> int:
    return ask_for_all(f"{address}/api/openapi.json", token, seconds)


def ask_for_all(description: str, token: str, seconds: str, *more: str) -> int:
    """Have schemathesis ask for all that a description allows, and for more; its exit code.

    Args:
        description: the address of an OpenAPI document.
        token: that the requests show.
        seconds: how long.
        more: further options.
    """
    options = ["--header", f"Authorization: Bearer {token}", "--phases", "examples,coverage,fuzzing,stateful"]
    bounds = ["--max-time", seconds, "--continue-on-failure", "--checks", CHECKS]
    return subprocess.run([str(PROGRAM), "run", description, *options, *bounds, *more], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
