"""A subscription that an operator puts right, or restores, is called at once, also behind calls that failed."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_routemaster import BUS, LISTENER, listening
from tests.conftest import StartDaemon
from tests.support.bus import add_bus, apply_text
from tests.support.gateway import serving_http
from tests.support.waiting import wait_until
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.readers.subscriptions import list_subscriptions
from xbus.clock import SystemClock

EVENT = {"type": "create", "url": "https://app.example/widgets/1"}


@pytest.mark.parametrize("story", ["failing", "removed", "removed while failing"])
def test_a_subscription_that_is_restored_is_called(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path, story: str
) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    apply_text(sqlite_url, BUS)
    with writing(sqlite_url) as connection:
        at = SystemClock().now()
        root = add_api_token(connection, "root", emitter="root", at=at)
        own = add_api_token(connection, "gateway", role="gateway_1", at=at)
    settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": own, "callback_hosts": "127.0.0.0/8"}
    slow = {"first_delay": 200, "longest_delay": 300}
    daemon = start_daemon(sqlite_url, {"http": settings, "back": slow})
    with listening(tmp_path) as (url, calls), serving_http(daemon.config) as address:

        def ask(token: str, method: str, path: str, body: object = None) -> Any:
            return httpx2.request(method, f"{address}{path}", json=body, auth=(token, "x"), timeout=30)

        def failures() -> int:
            with reading(sqlite_url) as connection:
                return list_subscriptions(connection)[0].failures

        listener, publisher = [
            ask(root, "POST", "/api_tokens", {"name": name}).json()["token"] for name in ("listener", "publisher")
        ]
        wish = {"topics": ["widgets"], "callback": url, "uuid": "of-the-listener", "timeout": 20, "max": 2}
        assert ask(listener, "POST", "/subscription", wish).status_code == 204
        if "failing" in story:
            assert ask(publisher, "POST", "/topics/widgets", EVENT).status_code == 204
            wait_until(lambda: failures() > 0, "the certificate is refused", 30)
        if "removed" in story:
            assert ask(listener, "DELETE", "/subscriber").status_code == 204
        apply_text(sqlite_url, LISTENER.format(url=url))
        assert ask(publisher, "POST", "/topics/widgets", EVENT).status_code == 204
        wait_until(lambda: calls, "it is called", 30)
        assert {user for user, _ in calls} == {"of-the-listener"}
