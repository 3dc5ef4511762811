"""Publishers of Routemaster push as they always did."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from tests.integration.http.conftest import AUTODROP, Shop, Visit
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.api_tokens import add_api_token, list_api_tokens
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.configuration import BusSpec, EmitterSpec, ProfileSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.envelopes.listing import list_envelopes
from xbus.clock import SystemClock
from xbus.ids import token_hash

EVENT = {"type": "create", "url": "https://shop.example/orders/1", "timestamp": 1_900_000_000_123}


def push(program: TestClient, shop: Shop, topic: str, event: Any) -> Any:
    return program.post(f"/topics/{topic}", json=event, auth=(shop.tokens["emitter_1"], "x"))


@pytest.mark.parametrize("extra", [{}, {"data": {"a": [1]}}, {"timestamp": None}])
def test_an_event_is_pushed(shop: Shop, program: TestClient, extra: dict[str, Any]) -> None:
    answer = push(program, shop, "orders", EVENT | extra)
    assert (answer.status_code, answer.content) == (204, b"")
    with reading(shop.daemon.url) as connection:
        newest = list_envelopes(connection, limit=1)[0]
    (item,) = shop.stored(str(newest.id)).items
    assert item["timestamp"] > 10**12
    assert item == EVENT | extra | {"timestamp": item["timestamp"]}


@pytest.mark.parametrize(
    ("topic", "changes"),
    [
        ("Orders", {}),
        ("x" * 65, {}),
        ("orders", {"type": "change"}),
        ("orders", {"type": ["create"]}),
        ("orders", {"url": "http://shop.example/orders/1"}),
        ("orders", {"url": "https://" + "x" * 1017}),
        ("orders", {"url": "https://"}),
        ("orders", {"url": "https://[shop/orders/1"}),
        ("orders", {"url": "https://ada:password@shop.example/orders/1"}),
        ("orders", {"timestamp": "now"}),
        ("orders", {"timestamp": -1}),
        ("orders", {"timestamp": 10**18}),
        ("orders", {"more": 1}),
        ("orders", {"topic": "others"}),
        ("orders", {"data": "x" * 64}),
    ],
)
def test_a_bad_event_is_400(shop: Shop, program: TestClient, topic: str, changes: dict[str, Any]) -> None:
    answer = push(program, shop, topic, EVENT | changes)
    assert (answer.status_code, answer.content, answer.headers["x-xbus-problem"]) == (400, b"", "bad_event")


def test_who_may_not_publish_is_403(shop: Shop, program: TestClient) -> None:
    assert push(program, shop, "forbidden_orders", EVENT).status_code == 403
    assert push(program, shop, "nothing", EVENT).status_code == 403


def test_strangers_are_401(program: TestClient) -> None:
    assert program.post("/topics/orders", json=EVENT, auth=("nobody", "x")).status_code == 401
    assert program.get("/pulse", auth=("nobody", "")).status_code == 401


def test_the_pulse_is_felt(shop: Shop, program: TestClient) -> None:
    answer = program.get("/pulse", auth=(shop.tokens["emitter_1"], ""))
    assert (answer.status_code, answer.content) == (204, b"")


ROOT = "the-root-key-of-the-old-bus"

CLIENT_EVENT = {"type": "update", "url": "https://shop.example/widgets/1"}


@pytest.fixture(scope="module")
def registrar(shop: Shop) -> str:
    """The token of an emitter that makes tokens for others, which make event types."""
    profiles = {
        "clients": ProfileSpec("clients", frozenset(), new_types="w*"),
        "registrar": ProfileSpec("registrar", frozenset(), clients="clients"),
    }
    bus = BusSpec(profiles=profiles, emitters={"root": EmitterSpec("root", "registrar")})
    with writing(shop.daemon.url) as connection:
        at = SystemClock().now()
        apply(connection, make_plan(read_stored(connection), bus), at)
        add_api_token(connection, "root", emitter="root", chosen=ROOT, at=at)
    return ROOT


class Client:
    """A client of Routemaster, which has a token and the password ``x``."""

    def __init__(self, http: TestClient, token: str) -> None:
        self.http = http
        self.token = token

    def ask(self, method: str, path: str, **given: Any) -> Any:
        return self.http.request(method, path, auth=(self.token, "x"), **given)

    def push(self, topic: str, **fields: Any) -> Any:
        return self.ask("POST", f"/topics/{topic}", json=CLIENT_EVENT | fields)


@pytest.fixture
def root(program: TestClient, registrar: str) -> Client:
    made = Client(program, registrar)
    wait_until(lambda: made.ask("GET", "/pulse").status_code == 204, "the token of the root")
    return made


@pytest.fixture
def join(root: Client) -> Callable[[str], Client]:
    """Makes clients by name, as the root does."""

    def join(name: str) -> Client:
        answer = root.ask("POST", "/api_tokens", json={"name": name})
        assert answer.status_code == 201
        return Client(root.http, answer.json()["token"])

    return join


def test_the_root_makes_lists_and_deletes_tokens(root: Client, shop: Shop) -> None:
    _revoke_all(root)
    assert (root.ask("GET", "/api_tokens").status_code, root.ask("GET", "/api_tokens").content) == (204, b"")
    answer = root.ask("POST", "/api_tokens", json={"name": "shop--one"})
    made = answer.json()
    assert (answer.status_code, set(made), made["name"]) == (201, {"name", "token"}, "shop--one")
    # The client for Ruby takes no other tokens.
    assert len(made["token"]) <= 64
    assert made["token"] == made["token"].lower()
    client = Client(root.http, made["token"])
    assert client.ask("GET", "/pulse").status_code == 204
    listed = root.ask("GET", "/api_tokens")
    assert listed.json() == [{"name": "shop--one", "token": token_hash(made["token"]).hex()}]
    assert root.ask("DELETE", f"/api_tokens/{made['token']}").status_code == 204
    assert root.ask("DELETE", f"/api_tokens/{made['token']}").status_code == 204
    assert client.ask("GET", "/pulse").status_code == 401
    assert root.ask("GET", "/api_tokens").status_code == 204
    with reading(shop.daemon.url) as connection:
        acts = [row.act for row in list_acts(connection, AuditFilters(), 100)]
    assert {(act.who, act.origin) for act in acts if act.action == "api_token_added" and "one" in act.object} == {
        ("root", "the front")
    }


def _revoke_all(root: Client) -> None:
    answer = root.ask("GET", "/api_tokens")
    for each in answer.json() if answer.content else ():
        assert root.ask("DELETE", f"/api_tokens/{each['token']}").status_code == 204


def test_a_token_is_deleted_by_its_hash(root: Client, join: Callable[[str], Client]) -> None:
    client = join("by hash")
    assert root.ask("DELETE", f"/api_tokens/{token_hash(client.token).hex()}").status_code == 204
    assert client.ask("GET", "/pulse").status_code == 401


def test_a_client_keeps_the_token_that_it_has(root: Client) -> None:
    token = "publishing-service--0d7f0c1e-5f0e"
    answer = root.ask("POST", "/api_tokens", json={"name": "kept", "token": token})
    assert (answer.status_code, answer.json()) == (201, {"name": "kept", "token": token})
    assert Client(root.http, token).ask("GET", "/pulse").status_code == 204
    assert root.ask("POST", "/api_tokens", json={"name": "kept", "token": token}).status_code == 400


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "bad_body"),
        ({}, "bad_body"),
        ({"name": 1}, "bad_body"),
        ({"name": " "}, "bad_name"),
        ({"name": "emitter_1"}, "name_taken"),
        ({"name": "root"}, "name_taken"),
        ({"name": "n", "token": "short"}, "bad_token"),
        ({"name": "n", "token": "with:colon-and-enough-letters"}, "bad_token"),
        ({"name": "n", "token": 5}, "bad_token"),
    ],
)
def test_a_token_of_nothing_is_400(root: Client, shop: Shop, body: Any, code: str) -> None:
    with reading(shop.daemon.url) as connection:
        before = list_api_tokens(connection)
    answer = root.ask("POST", "/api_tokens", json=body)
    assert (answer.status_code, answer.content, answer.headers["x-xbus-problem"]) == (400, b"", code)
    with reading(shop.daemon.url) as connection:
        assert [each.name for each in list_api_tokens(connection)] == [each.name for each in before]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", "/x")])
def test_tokens_are_the_matter_of_the_root(
    root: Client, shop: Shop, join: Callable[[str], Client], method: str, path: str
) -> None:
    for client in (join("curious"), Client(root.http, shop.tokens["emitter_1"])):
        answer = client.ask(method, f"/api_tokens{path}", json={"name": "mine"})
        assert (answer.status_code, answer.headers["x-xbus-problem"]) == (401, "clients_not_allowed")
    assert Client(root.http, "nobody").ask(method, f"/api_tokens{path}", json={"name": "mine"}).status_code == 401


def test_the_root_reaches_no_token_of_others(root: Client, shop: Shop, program: TestClient) -> None:
    for token in (shop.tokens["emitter_1"], ROOT):
        assert root.ask("DELETE", f"/api_tokens/{token}").status_code == 204
        assert program.get("/pulse", auth=(token, "")).status_code == 204


def test_the_first_push_makes_a_topic_of_one_publisher(join: Callable[[str], Client]) -> None:
    first, second = join("first"), join("second")
    assert first.push("widgets").status_code == 204
    refused = second.push("widgets")
    assert (refused.status_code, refused.content, refused.headers["x-xbus-problem"]) == (403, b"", "type_not_allowed")
    assert first.push("widgets", type="delete").status_code == 204
    topics = {each["name"]: each for each in second.ask("GET", "/topics").json()}
    assert topics["widgets"] == {"name": "widgets", "publisher": "first", "events": 2}


def test_two_tokens_of_one_name_are_one_publisher(join: Callable[[str], Client]) -> None:
    old, new = join("rotated"), join("rotated")
    assert old.token != new.token
    assert old.push("wheels").status_code == 204
    assert new.push("wheels").status_code == 204


def test_a_client_subscribes_to_many_topics_that_nobody_has_pushed_to(
    join: Callable[[str], Client], shop: Shop
) -> None:
    client = join("wide")
    names = [f"wide_{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(120)]
    wish = {"topics": names, "callback": "https://wide.example/events", "uuid": "wide"}
    assert client.ask("POST", "/subscription", json=wish).status_code == 204
    (own,) = [each for each in client.ask("GET", "/subscriptions").json() if each["subscriber"] == "wide"]
    assert own["topics"] == sorted(names)
    with reading(shop.daemon.url) as connection:
        made = read_stored(connection).in_use.subscriptions["wide"]
    assert (made.max_lag, made.when_behind) == (AUTODROP, "skip"), "it drops the oldest, as all do that clients make"


def test_a_profile_bounds_the_names_of_topics(join: Callable[[str], Client], root: Client, shop: Shop) -> None:
    client = join("bounded")
    assert client.push("other_things").status_code == 403
    assert client.push("orders").status_code == 403
    assert root.push("widgets_of_the_root").status_code == 401
    assert Client(root.http, shop.tokens["emitter_1"]).push("wanted").status_code == 403
    assert "other_things" not in [each["name"] for each in client.ask("GET", "/topics").json()]


def test_a_publisher_removes_its_topic(join: Callable[[str], Client]) -> None:
    owner, other = join("owner"), join("other")
    assert owner.push("wagons").status_code == 204
    assert other.ask("DELETE", "/topics/wagons").status_code == 403
    assert owner.ask("DELETE", "/topics/wagons").status_code == 204
    assert owner.ask("DELETE", "/topic/wagons").status_code == 404
    assert "wagons" not in [each["name"] for each in owner.ask("GET", "/topics").json()]
    assert other.push("wagons").status_code == 204
    assert owner.push("wagons").status_code == 403
    assert other.ask("DELETE", "/topic/wagons").status_code == 204


def test_the_root_removes_topics_of_clients_alone(root: Client, join: Callable[[str], Client]) -> None:
    assert join("gone").push("wrecks").status_code == 204
    assert root.ask("DELETE", "/topics/wrecks").status_code == 204
    assert root.ask("DELETE", "/topics/orders").status_code == 403


def test_topics_of_the_bus_file_are_shown_to_their_publishers(root: Client, shop: Shop) -> None:
    names = [each["name"] for each in Client(root.http, shop.tokens["emitter_1"]).ask("GET", "/topics").json()]
    assert "orders" in names
    assert "forbidden_orders" not in names
    assert "orders" not in [each["name"] for each in root.ask("GET", "/topics").json()]


def test_the_client_for_go_is_understood(root: Client, join: Callable[[str], Client]) -> None:
    """It sends the topic in the event, the body ``null`` where there is none, no type of it, and an empty password."""
    token = join("gopher").token
    event = b'{"topic":"wasps","type":"create","url":"https://orderweb/orders/1"}'
    auth = (token, "")
    assert root.http.post("/topics/wasps", content=event, auth=auth).status_code == 204
    assert [each["publisher"] for each in _get_as_go(root.http, token) if each["name"] == "wasps"] == ["gopher"]
    assert root.http.request("DELETE", "/topic/wasps", content=b"null", auth=auth).status_code == 204


def _get_as_go(http: TestClient, token: str) -> Any:
    return http.request("GET", "/topics", content=b"null", auth=(token, "")).json()


def test_the_client_for_ruby_is_understood(join: Callable[[str], Client]) -> None:
    client = join("rubyist")
    head = {"Content-Type": "application/json"}
    event = b'{"type":"create","url":"https://app.example.com/widgets/123","timestamp":null}'
    assert client.ask("POST", "/topics/wombats", content=event, headers=head).status_code == 204
    assert client.ask("GET", "/topics", headers=head).status_code == 200
    assert client.ask("DELETE", "/topics/wombats").status_code == 204


def test_scaling_takes_a_second_while_recipients_are_behind(
    root: Client, visit: Visit, shop: Shop, program: TestClient
) -> None:
    # No recipient runs, so an envelope waits for one.
    assert push(program, shop, "orders", EVENT).status_code == 204
    calm, busy = visit(scaling_backlog=10**9), visit(scaling_backlog=1)

    def seconds(http: TestClient) -> float:
        begin = time.monotonic()
        assert http.get("/pulse/scaling", auth=(ROOT, "x")).status_code == 204
        return time.monotonic() - begin

    assert seconds(busy) >= 1
    assert min(seconds(calm) for _ in range(5)) < 1
    assert calm.get("/pulse/scaling", auth=("nobody", "x")).status_code == 401


WANTED = {"topics": ["weather", "winds"], "callback": "https://app.example.com/events", "timeout": 60_000, "max": 500}


def subscriptions(client: Client) -> dict[str, Any]:
    listed = client.ask("GET", "/subscriptions").json()
    assert listed == client.ask("GET", "/subscribers").json()
    return {each["subscriber"]: each for each in listed}


def test_a_client_subscribes_to_topics_that_nobody_has_pushed_to(join: Callable[[str], Client]) -> None:
    reader, publisher = join("subscriber"), join("forecaster")
    body = b'{"topics":["weather","winds"],"callback":"https://app.example.com/events","timeout":60000,"max":500}'
    head = {"Content-Type": "application/json"}
    answer = reader.ask("POST", "/subscription", content=body, headers=head)
    assert (answer.status_code, answer.content) == (204, b"")
    assert {each["name"]: each["publisher"] for each in reader.ask("GET", "/topics").json()}["winds"] is None
    assert publisher.push("winds").status_code == 204
    found = subscriptions(publisher)["subscriber"]
    oldest = found["events"].pop("oldest")
    assert abs(oldest - time.time()) < 3600
    assert found == {
        "subscriber": "subscriber",
        "uuid": None,
        "callback": "https://app.example.com/events",
        "max_events": 500,
        "timeout": 60_000,
        "topics": ["weather", "winds"],
        "events": {"sent": 1, "queued": 1},
    }


@pytest.mark.parametrize(("uuid", "called_as"), [(None, "drain-1"), ("own", "own")])
def test_a_user_name_in_the_url_is_the_uuid_unless_the_body_has_one(
    join: Callable[[str], Client], uuid: str | None, called_as: str
) -> None:
    client = join(f"named_{called_as[:3]}")
    wish = WANTED | {"callback": "https://drain%2D1@app.example.com/events", "uuid": uuid}
    assert client.ask("POST", "/subscription", json=wish).status_code == 204
    (found,) = [each for each in subscriptions(client).values() if each["uuid"] is not None]
    assert (found["callback"], found["uuid"]) == ("https://app.example.com/events", called_as)
    assert client.ask("DELETE", "/subscriber").status_code == 204


def test_a_subscription_again_replaces_its_topics_and_unsubscribing_ends_it(join: Callable[[str], Client]) -> None:
    client = join("changing")
    assert client.ask("POST", "/subscription", json=WANTED).status_code == 204
    assert client.ask("POST", "/subscriber", json=WANTED | {"topics": ["winds", "waves"]}).status_code == 204
    assert subscriptions(client)["changing"]["topics"] == ["waves", "winds"]
    assert client.ask("DELETE", "/subscriber/topics/weather").status_code == 404
    assert client.ask("DELETE", "/subscriber/topics/waves").status_code == 204
    assert subscriptions(client)["changing"]["topics"] == ["winds"]
    assert client.ask("DELETE", "/subscribers/topics/winds").status_code == 204
    assert subscriptions(client)["changing"]["topics"] == []
    for path in ("/subscriber", "/subscribers"):
        assert client.ask("POST", "/subscription", json=WANTED).status_code == 204
        assert client.ask("DELETE", path).status_code == 204
        assert client.ask("DELETE", path).status_code == 404
    assert "changing" not in subscriptions(client)


def test_who_subscribes_anew_gets_nothing_of_before(join: Callable[[str], Client]) -> None:
    client, publisher = join("back"), join("diver")
    assert client.ask("POST", "/subscription", json=WANTED | {"topics": ["wrecks_found"]}).status_code == 204
    assert publisher.push("wrecks_found").status_code == 204
    assert subscriptions(client)["back"]["events"]["queued"] == 1
    assert client.ask("DELETE", "/subscriber").status_code == 204
    assert client.ask("POST", "/subscription", json=WANTED | {"topics": ["wrecks_found"]}).status_code == 204
    assert subscriptions(client)["back"]["events"] == {"sent": 1, "queued": 0, "oldest": None}


def test_who_removes_a_topic_unsubscribes_all(join: Callable[[str], Client]) -> None:
    one, two, publisher = join("one"), join("two"), join("closing")
    assert publisher.push("wharves").status_code == 204
    assert one.ask("POST", "/subscription", json=WANTED | {"topics": ["wharves"]}).status_code == 204
    assert two.ask("POST", "/subscription", json=WANTED | {"topics": ["wharves", "winds"]}).status_code == 204
    assert two.ask("DELETE", "/topics/wharves").status_code == 403
    assert subscriptions(one)["one"]["topics"] == ["wharves"]
    assert publisher.ask("DELETE", "/topics/wharves").status_code == 204
    assert [subscriptions(two)[name]["topics"] for name in ("one", "two")] == [[], ["winds"]]
    assert one.ask("DELETE", "/subscriber").status_code == 204
    assert one.ask("DELETE", "/subscriber").status_code == 404


@pytest.mark.parametrize(
    "changes",
    [
        {"topics": "weather"},
        {"topics": ["Weather"]},
        {"topics": [1]},
        {"callback": "http://app.example.com/events"},
        {"callback": "app.example.com"},
        {"callback": "https://[x"},
        {"callback": "https://app.example.com:99999"},
        {"callback": None},
        {"callback": "https://old@new@app.example.com/x"},
        {"callback": "https://@app.example.com/x"},
        {"callback": "https://old@127.0.0.1/x"},
        {"callback": "https://with%3Acolon@app.example.com/x"},
        {"callback": "https://old:password@app.example.com/x"},
        {"callback": "https://127.0.0.1/x"},
        {"callback": "https://10.1.2.3:8443/x"},
        {"callback": "https://[::1]/x"},
        {"callback": "https://[::ffff:169.254.169.254]/x"},
        {"callback": "https://localhost/x"},
        {"callback": "https://2130706433/x"},
        {"uuid": 5},
        {"uuid": "with:colon"},
        {"timeout": -1},
        {"timeout": 3_600_001},
        {"max": 0},
        {"max": 10_001},
        {"max": "5"},
        {"more": 1},
    ],
)
def test_a_bad_subscription_is_400_and_changes_nothing(join: Callable[[str], Client], changes: dict[str, Any]) -> None:
    client = join("mistaken")
    answer = client.ask("POST", "/subscription", json=WANTED | changes)
    assert (answer.status_code, answer.content) == (400, b"")
    assert "mistaken" not in subscriptions(client)


def test_a_client_may_subscribe_to_nothing_and_sees_its_own_uuid_alone(join: Callable[[str], Client]) -> None:
    one, other = join("idle"), join("peeping")
    wish = WANTED | {"topics": [], "uuid": "of-the-idle"}
    assert one.ask("POST", "/subscription", json=wish).status_code == 204
    assert (subscriptions(one)["idle"]["topics"], subscriptions(one)["idle"]["uuid"]) == ([], "of-the-idle")
    assert subscriptions(other)["idle"]["uuid"] is None


def test_a_token_without_a_body_is_that_of_a_client_with_a_new_name(root: Client) -> None:
    made = [root.ask("POST", "/api_tokens") for _ in range(2)]
    assert [each.status_code for each in made] == [201, 201]
    names = {each.json()["name"] for each in made}
    assert len(names) == 2
    assert names <= {each["name"] for each in root.ask("GET", "/api_tokens").json()}


@pytest.mark.parametrize("path", ["/health", "/health/ping", "/health/ping.json"])
def test_health_is_answered_to_everybody(visit: Visit, path: str) -> None:
    stranger = visit()
    del stranger.headers["authorization"]
    answer = stranger.get(path)
    assert answer.status_code == 200
    assert answer.json()["pong"]


def test_a_private_callback_is_taken_where_the_gateway_may_call_it(
    join: Callable[[str], Client], visit: Visit, program: TestClient
) -> None:
    client = join("inside")
    wish = WANTED | {"callback": "https://10.1.2.3/x"}
    refused = client.ask("POST", "/subscription", json=wish)
    assert (refused.status_code, refused.headers["x-xbus-problem"]) == (400, "callback_not_allowed")
    allowing = Client(visit(callback_hosts=("10.0.0.0/8",)), client.token)
    assert allowing.ask("POST", "/subscription", json=wish).status_code == 204


def test_a_subscriber_gets_topics_alone(join: Callable[[str], Client], root: Client, shop: Shop) -> None:
    client = join("nosy")
    assert client.ask("POST", "/subscription", json=WANTED | {"topics": ["orders"]}).status_code == 403
    assert root.ask("POST", "/subscription", json=WANTED).status_code == 401
    other = Client(root.http, shop.tokens["emitter_1"])
    assert other.ask("POST", "/subscription", json=WANTED).status_code == 403
    assert other.ask("GET", "/subscriptions").status_code == 403
    assert other.ask("DELETE", "/subscriber").status_code == 404


def test_the_user_name_of_a_callback_is_its_uuid(join: Callable[[str], Client], shop: Shop) -> None:
    client = join("named")
    wish = WANTED | {"callback": "https://app.example.com/x", "uuid": "secret-of-the-listener"}
    assert client.ask("POST", "/subscription", json=wish).status_code == 204
    assert subscriptions(client)["named"]["callback"] == "https://app.example.com/x"
    with reading(shop.daemon.url) as connection:
        rows = connection.execute(sa.select(model.subscription.c.secret).where(model.subscription.c.name == "named"))
        assert rows.scalar_one() == "secret-of-the-listener"


def test_refusals_without_a_body_are_described(program: TestClient) -> None:
    paths = program.get("/v1/openapi.json").json()["paths"]
    refusals = paths["/api_tokens"]["post"]["responses"]
    assert refusals["401"] == {"description": "Unauthorized: token_missing, clients_not_allowed"}
    assert "content" in paths["/v1/types/{type}/envelopes"]["post"]["responses"]["403"]
    assert set(paths) >= {
        *("/topics", "/topics/{name}", "/topic/{name}", "/subscription", "/subscriber", "/subscribers"),
        *("/subscriber/topics/{name}", "/subscriptions", "/api_tokens", "/api_tokens/{token}"),
        *("/pulse", "/pulse/scaling"),
    }
