"""A broker that tests share where each leaves it as it was, and the wheel."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options
from tests.support.filled import new_sqlite
from tests.support.processes import run

CHECKOUT = Path(__file__).parents[2]

LIMITS: Options = {
    "front": {"max_item_bytes": 1000, "max_envelope_items": 20, "max_envelope_bytes": 5000, "max_envelope_events": 30}
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with small limits on SQLite; ``test_event`` goes to the consumer ``c``, and one type nobody may send."""
    with shared_broker(tmp_path_factory.mktemp("shared")) as daemon:
        yield daemon


@contextmanager
def shared_broker(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """The broker of ``shared``.

    Args:
        folder: for its files.
        env: what its environment has beyond that of the tests.
    """
    url = new_sqlite(folder / "xbus.db")
    add_bus(url, {"test_event": {"c": []}, "forbidden_event": {"c": []}})
    daemon = Daemon(folder / "daemon", url, LIMITS).start(env=env)
    try:
        yield daemon
    finally:
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
