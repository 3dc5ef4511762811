"""``make fuzz-http``: schemathesis asks the gateway for HTTP for all that its description allows, and for more.

The gateway runs before a broker with a reader. The token is both an emitter's and a role's. The program fails at an
internal error, and at an answer that the description does not know.
"""

import sys
import tempfile
from pathlib import Path

from tests.fuzz.api import ask_for_all
from tests.support.bus import add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.gateway import serving_http
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock

ENDLESS = "/v1/types/{type}/tail"
"""It answers for as long as its client is there, and schemathesis waits for the end."""


PATIENT = ("--suppress-health-check", "filter_too_much")
"""Many of the texts that it makes up have no place in a header."""


def main(seconds: str) -> int:
    """Ask for so many seconds, and give the exit code of schemathesis."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/xbus.db"
        schema.upgrade(url)
        add_bus(url, {"orders": {}})
        add_reader(url, "billing", "orders", start="oldest")
        with writing(url) as connection:
            at = SystemClock().now()
            token = add_api_token(connection, "fuzz", emitter="emitter_1", role="billing_1", at=at)
        daemon = Daemon(Path(folder) / "daemon", url, {"http": {"listen": "127.0.0.1:0", "insist_seconds": 2}}).start()
        try:
            with serving_http(daemon.config) as address:
                return ask_for_all(f"{address}/v1/openapi.json", token, seconds, "--exclude-path", ENDLESS, *PATIENT)
        finally:
            daemon.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
