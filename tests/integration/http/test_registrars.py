"""Two programs make tokens for clients of a profile each: neither reaches what is the other's."""

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.integration.http.conftest import Shop
from tests.support.waiting import wait_until
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import BusSpec, EmitterSpec, ProfileSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.ids import token_hash

SIDES = ("north", "south")
EVENT = {"type": "create", "url": "https://shop.example/1", "timestamp": 1_900_000_000_123}
WISH = {"topics": ["rivers"], "callback": "https://app.example.com/events", "timeout": 20, "max": 1}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def registrars(shop: Shop) -> dict[str, str]:
    """The token of each registrar, by its side. The clients of both may make topics of the same names."""
    profiles = {
        f"clients of the {side}": ProfileSpec(f"clients of the {side}", frozenset(), new_types="r*") for side in SIDES
    }
    profiles |= {side: ProfileSpec(side, frozenset(), clients=f"clients of the {side}") for side in SIDES}
    bus = BusSpec(profiles=profiles, emitters={f"root_{side}": EmitterSpec(f"root_{side}", side) for side in SIDES})
    with writing(shop.daemon.url) as connection:
        at = SystemClock().now()
        apply(connection, make_plan(read_stored(connection), bus), at)
        return {side: add_api_token(connection, f"root_{side}", emitter=f"root_{side}", at=at) for side in SIDES}


@pytest.fixture
def ask(program: TestClient, registrars: dict[str, str]) -> Ask:
    """Asks the gateway with a token."""

    def ask(token: str, method: str, path: str, **given: Any) -> Any:
        return program.request(method, path, auth=(token, "x"), **given)

    for token in registrars.values():
        wait_until(lambda token=token: ask(token, "GET", "/pulse").status_code == 204, "the registrar's token")  # type: ignore[misc]
    return ask


@pytest.fixture
def clients(ask: Ask, registrars: dict[str, str]) -> dict[str, str]:
    """The token of a client of each side."""
    made = {side: ask(registrars[side], "POST", "/api_tokens", json={"name": f"of_the_{side}"}) for side in SIDES}
    return {side: str(answer.json()["token"]) for side, answer in made.items()}


def test_nobody_lists_or_revokes_the_tokens_of_anothers_clients(
    ask: Ask, registrars: dict[str, str], clients: dict[str, str]
) -> None:
    listed = ask(registrars["north"], "GET", "/api_tokens").json()
    assert {each["name"] for each in listed} == {"of_the_north"}
    # The answer does not say whether there is such a token.
    for known in (clients["south"], token_hash(clients["south"]).hex(), registrars["south"]):
        assert ask(registrars["north"], "DELETE", f"/api_tokens/{known}").status_code == 204
    for token in (clients["south"], registrars["south"]):
        assert ask(token, "GET", "/pulse").status_code == 204
    for name in ("of_the_south", "root_south", "emitter_1"):
        refused = ask(registrars["north"], "POST", "/api_tokens", json={"name": name})
        assert refused.status_code >= 400, f"a token as {name} was made"
        assert b"xbus_api_" not in refused.content
    assert ask(registrars["south"], "DELETE", f"/api_tokens/{clients['south']}").status_code == 204
    assert ask(clients["south"], "GET", "/pulse").status_code == 401


def test_nobody_publishes_removes_or_unsubscribes_what_is_of_anothers_client(
    ask: Ask, registrars: dict[str, str], clients: dict[str, str]
) -> None:
    assert ask(clients["south"], "POST", "/topics/rivers", json=EVENT).status_code == 204
    assert ask(clients["south"], "POST", "/subscription", json=WISH).status_code == 204
    for stranger in (clients["north"], registrars["north"]):
        pushed = ask(stranger, "POST", "/topics/rivers", json=EVENT).status_code
        assert pushed == (403 if stranger in clients.values() else 401)
        assert ask(stranger, "DELETE", "/topics/rivers").status_code == 403
        assert ask(stranger, "DELETE", "/subscriber").status_code >= 400
    assert {"subscriber": "of_the_south", "topics": ["rivers"]}.items() <= _subscriptions(ask, clients["south"])[
        0
    ].items()
    assert ask(clients["south"], "DELETE", "/subscriber").status_code == 204
    assert ask(clients["south"], "DELETE", "/topics/rivers").status_code == 204


def _subscriptions(ask: Ask, token: str) -> list[dict[str, Any]]:
    return [each for each in ask(token, "GET", "/subscriptions").json() if each["subscriber"].startswith("of_the")]
