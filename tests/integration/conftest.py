"""A real broker for contracts: the same cases run against it and against the double that stands in for a part of it."""

from collections.abc import Iterator

import pytest

from tests.support.bus import add_demo
from tests.support.daemon import Daemon, Options
from tests.support.filled import new_sqlite

LIMITS: Options = {
    "front": {"max_item_bytes": 1000, "max_batch_bytes": 5000, "session_seconds": 3600},
    "back": {"session_seconds": 3600},
}
"""Those of the doubles."""


@pytest.fixture(scope="module")
def demo_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with the classic demo rows on SQLite, shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("demo")
    url = new_sqlite(folder / "xbus.db")
    add_demo(url)
    daemon = Daemon(folder / "daemon", url, LIMITS)
    daemon.start()
    yield daemon
    daemon.kill()
