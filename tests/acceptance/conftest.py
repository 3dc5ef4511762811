"""A broker that tests share where each leaves it as it was."""

from collections.abc import Iterator

import pytest

from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options
from xbus.broker.journal.database import schema

LIMITS: Options = {"front": {"max_item_bytes": 1000, "max_envelope_items": 20, "max_envelope_bytes": 5000}}


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
