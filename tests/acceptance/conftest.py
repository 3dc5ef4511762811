"""A broker that tests share where each leaves it as it was, and the wheel."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options
from tests.support.processes import run
from xbus.broker.journal.database import schema

CHECKOUT = Path(__file__).parents[2]

LIMITS: Options = {
    "front": {"max_item_bytes": 1000, "max_envelope_items": 20, "max_envelope_bytes": 5000, "max_envelope_events": 30}
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with small limits on SQLite; ``test_event`` goes to the consumer ``c``, and one type nobody may send."""
    folder = tmp_path_factory.mktemp("shared")
    url = f"sqlite:///{folder / 'xbus.db'}"
    schema.upgrade(url)
    add_bus(url, {"test_event": {"c": []}, "forbidden_event": {"c": []}})
    daemon = Daemon(folder / "daemon", url, LIMITS)
    daemon.start()
    yield daemon
    daemon.kill()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    result = run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, CHECKOUT), cwd=CHECKOUT
    )
    assert result.returncode == 0, result.stderr
    return next(folder.glob("*.whl"))
