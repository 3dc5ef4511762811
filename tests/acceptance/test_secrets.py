"""No secret is in anything that a whole run writes: logs, commands, metrics, the journal, arguments of processes."""

import asyncio
import os
import urllib.request
from pathlib import Path

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.operating import run_xbus, xbus
from tests.support.ports import free_port
from tests.support.processes import run, script
from tests.support.sdk import Keeps, emit, send_values
from tests.support.serving import serving
from tests.support.strangers import Stranger
from tests.support.waiting import eventually
from xbus.recipient import Event, Item

NEW_PASSWORD = "new-password-5d1e0c"
WRONG_PASSWORD = "wrong-password-83bb71"
WEBHOOK = "webhook-secret-c0ffee41"
DSN = "dsn-secret-7be114"

COMMANDS = (
    ("health",),
    ("export",),
    ("session", "list"),
    ("recipient", "list"),
    ("failure", "list"),
    ("parked", "list"),
    ("envelope", "list"),
    ("type", "list"),
    ("config", "show"),
    ("config", "check"),
    ("journal", "show"),
    ("why", "--role", "sink_1"),
    ("why", "--emitter", "emitter_1"),
)


class Fails(Keeps):
    """Refuses each item, so that failures are written, too."""

    def on_item(self, event: Event, item: Item) -> None:
        raise ValueError("this item is wrong")


async def test_no_secret_is_written(database_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(database_url, {"numbers": {"sink": [], "broken": []}})
    metrics = f"127.0.0.1:{free_port()}"
    daemon = start_daemon(
        database_url,
        {
            "logging": {"level": "DEBUG"},
            "metrics": {"listen": metrics},
            "alerts": {"url": f"http://127.0.0.1:{free_port()}/{WEBHOOK}"},
            "health": {"interval": 1},
            "sentry": {"dsn": f"http://{DSN}@127.0.0.1:{free_port()}/1"},
            "back": {"attempts": 1},
        },
    )
    written: dict[str, str] = {}
    keeps, fails = Keeps(), Fails()
    async with serving(daemon, "sink_1", keeps), serving(daemon, "broken_1", fails):
        await emit(daemon, send_values([1, 2, 3]))
        await eventually(lambda: bool(keeps.committed), "the consumer has it")
        await eventually(lambda: bool(fails.rolled_back), "the other one has refused it")
        tokens = await asyncio.to_thread(_wrong_and_right_calls, daemon)
        changed = await run_xbus(
            daemon, "password", "emitter", "emitter_2", "--keep-sessions", stdin=f"{NEW_PASSWORD}\n{NEW_PASSWORD}\n"
        )
        written["xbus password"] = changed.stdout + changed.stderr
        assert changed.returncode == 0, changed.stderr
        for command in COMMANDS:
            done = await run_xbus(daemon, *command)
            written[f"xbus {' '.join(command)}"] = done.stdout + done.stderr
        written["a command that fails"] = _failing_command(daemon)
        written["metrics"] = await asyncio.to_thread(_page, f"http://{metrics}/metrics")
        written["readiness"] = await asyncio.to_thread(_page, f"http://{metrics}/readyz")
        written["arguments"] = _arguments(daemon.pid)
        envelope = next(iter(keeps.committed))
        written["envelope show"] = await xbus(daemon, "envelope", "show", envelope)
    assert daemon.stop() == 0
    written["log"] = daemon.log
    secrets = {NEW_PASSWORD, WRONG_PASSWORD, WEBHOOK, DSN, *tokens}
    # That of PostgreSQL; SQLite has none.
    secrets |= {password for password in [sa.make_url(database_url).password] if password}
    assert len(written["log"]) > 1000
    found = [(place, secret) for place, text in written.items() for secret in secrets if secret in text]
    assert found == []
    content = _journal(database_url)
    assert "emitter_2" in content, "the search sees the rows"
    assert [secret for secret in secrets if secret in content] == []


def _wrong_and_right_calls(daemon: Daemon) -> list[str]:
    """Log in wrongly and rightly, make calls that are refused, and give the tokens."""
    tokens = []
    for address, login in ((daemon.front, "emitter_1"), (daemon.back, "sink_1")):
        with Stranger(address) as caller:
            caller.call("xbus.login", login, WRONG_PASSWORD)
            caller.answer()
            caller.call("xbus.login", login, PASSWORD)
            _, answer = caller.answer()
            token = answer["token"]
            tokens.append(token)
            for arguments in ((token,), (token, "no id"), (token, "no id", 7), (token, {"a": 1})):
                for verb in ("xbus.start_envelope", "xbus.start_event", "xbus.register", "xbus.no_such_verb"):
                    caller.call(verb, *arguments)
                    caller.answer()
    return tokens


def _failing_command(daemon: Daemon) -> str:
    """Have a command fail at a password that somebody has put into its environment."""
    environment = {**os.environ, "XBUS_PASSWORD": WRONG_PASSWORD}
    done = run(script("xbus"), "emit", "numbers", "-", "--url", daemon.front, "--login", "emitter_1", env=environment)
    assert done.returncode != 0
    return str(done.stdout + done.stderr)


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def _arguments(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _journal(url: str) -> str:
    """All values of all tables, as text."""
    engine = sa.create_engine(url)
    metadata = sa.MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        rows = [tuple(row) for table in metadata.tables.values() for row in connection.execute(sa.select(table))]
    engine.dispose()
    return repr(rows)
