"""A subscriber that signed its own certificate is called where the operator says so, also behind calls that failed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

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


Ask: TypeAlias = Callable[..., Any]
Widgets: TypeAlias = Callable[..., AbstractContextManager[tuple[Ask, str, list[Any]]]]


@pytest.fixture
def widgets(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> Widgets:
    """A gateway with options of its own before a broker, and a subscriber that signed its own certificate."""

    @contextmanager
    def serving(**http: str) -> Iterator[tuple[Ask, str, list[Any]]]:
        add_bus(sqlite_url, {"orders": {"store": []}})
        apply_text(sqlite_url, BUS)
        with writing(sqlite_url) as connection:
            at = SystemClock().now()
            root = add_api_token(connection, "root", emitter="root", at=at)
            own = add_api_token(connection, "gateway", role="gateway_1", at=at)
        settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": own, "callback_hosts": "127.0.0.0/8"}
        slow = {"first_delay": 200, "longest_delay": 300}
        daemon = start_daemon(sqlite_url, {"http": settings | http, "back": slow})
        with listening(tmp_path) as (url, calls), serving_http(daemon.config) as address:
            tokens = {"root": root}

            def ask(who: str, method: str, path: str, body: object = None) -> Any:
                return httpx2.request(method, f"{address}{path}", json=body, auth=(tokens[who], "x"), timeout=30)

            for name in ("listener", "publisher"):
                tokens[name] = ask("root", "POST", "/api_tokens", {"name": name}).json()["token"]
            wish = {"topics": ["widgets"], "callback": url, "uuid": "of-the-listener", "timeout": 20, "max": 2}
            assert ask("listener", "POST", "/subscription", wish).status_code == 204
            yield ask, url, calls

    return serving


@pytest.mark.parametrize("story", ["failing", "removed", "removed while failing"])
def test_a_subscription_that_is_restored_is_called(sqlite_url: str, widgets: Widgets, story: str) -> None:
    def failures() -> int:
        with reading(sqlite_url) as connection:
            return list_subscriptions(connection)[0].failures

    with widgets() as (ask, url, calls):
        if "failing" in story:
            assert ask("publisher", "POST", "/topics/widgets", EVENT).status_code == 204
            wait_until(lambda: failures() > 0, "the certificate is refused", 30)
        if "removed" in story:
            assert ask("listener", "DELETE", "/subscriber").status_code == 204
        apply_text(sqlite_url, LISTENER.format(url=url))
        assert ask("publisher", "POST", "/topics/widgets", EVENT).status_code == 204
        wait_until(lambda: calls, "it is called", 30)
        assert {user for user, _ in calls} == {"of-the-listener"}


def test_a_gateway_that_checks_no_certificate_calls_whoever_signed_its_own(widgets: Widgets) -> None:
    with widgets(callback_verify="no") as (ask, _, calls):
        assert ask("publisher", "POST", "/topics/widgets", EVENT).status_code == 204
        wait_until(lambda: calls, "it is called", 30)
