"""Programs make event types and API tokens as far as their profile says, and nothing beyond."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.bus import add_bus
from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.api_tokens import list_api_tokens
from xbus.broker.journal.audit import AuditFilters, list_acts
from xbus.broker.journal.clients import add_client_token, list_client_tokens, revoke_client_token
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    ProfileSpec,
    Section,
    SubscriptionSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.checked import find_table_problems
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.catalog import read_catalog, read_version
from xbus.broker.journal.subscribers import (
    ATTEMPTS,
    SubscriptionWish,
    list_subscribers,
    make_topics,
    remove_subscribed,
    subscribe,
    unsubscribe,
)
from xbus.broker.journal.topics import claim_topic, count_waiting, ensure_topics, list_topics, remove_topic
from xbus.errors import ConfigurationError
from xbus.ids import token_hash

BUS = BusSpec(
    profiles={
        "shops": ProfileSpec("shops", frozenset(), new_types="shop_*"),
        "registrars": ProfileSpec("registrars", frozenset(), clients="shops"),
    },
    emitters={
        "north": EmitterSpec("north", "shops"),
        "south": EmitterSpec("south", "shops"),
        "root": EmitterSpec("root", "registrars"),
    },
)


@pytest.fixture
def url(database_url: str) -> str:
    add_bus(database_url, {"orders": {"store": []}})
    with writing(database_url) as connection:
        plan = make_plan(read_stored(connection), BUS)
        assert not plan.problems
        apply(connection, plan, NOW)
    return database_url


def ids(connection: sa.Connection) -> dict[str, int]:
    return {each.login: each.id for each in read_catalog(connection).emitters.values()}


def code_of(refusal: pytest.ExceptionInfo[ConfigurationError]) -> str:
    return refusal.value.code


def test_the_first_that_claims_a_type_publishes_it(url: str) -> None:
    with writing(url) as connection:
        north, south = ids(connection)["north"], ids(connection)["south"]
        claim_topic(connection, north, "shop_orders", NOW)
        version = read_version(connection)
        claim_topic(connection, north, "shop_orders", NOW)
        assert read_version(connection) == version
        with pytest.raises(ConfigurationError) as refusal:
            claim_topic(connection, south, "shop_orders", NOW)
    assert code_of(refusal) == "type_not_allowed"
    with reading(url) as connection:
        made = read_catalog(connection).event_types["shop_orders"]
        assert (made.publisher_id, made.is_topic) == (north, True)
        assert find_table_problems(connection) == []
        assert [(each.name, each.publisher, each.events) for each in list_topics(connection, south, NOW)] == [
            ("shop_orders", "north", 0)
        ]


def test_what_a_program_does_is_one_change_and_no_edit_by_hand(url: str) -> None:
    with writing(url) as connection:
        north, south = ids(connection)["north"], ids(connection)["south"]
        steps: list[tuple[Callable[[], None], int]] = [
            (lambda: claim_topic(connection, north, "shop_orders", NOW), 1),
            (lambda: subscribe(connection, south, wish("shop_orders"), NOW), 1),
            (lambda: subscribe(connection, south, wish("shop_orders", "shop_returns"), NOW), 2),
            (lambda: unsubscribe(connection, south, "shop_returns", NOW), 1),
            (lambda: remove_subscribed(connection, north, "shop_orders", NOW), 2),
            (lambda: claim_topic(connection, north, "shop_orders", NOW), 1),
        ]
        for step, changes in steps:
            before = read_version(connection)
            step()
            assert read_version(connection) - before == changes
        acts = [row.act for row in list_acts(connection, AuditFilters(), 100)]
    assert "edited_by_sql" not in {act.action for act in acts}
    assert sum('publisher "north"' in act.after for act in acts) == 2


def test_a_type_that_waits_for_a_publisher_is_claimed(url: str) -> None:
    with writing(url) as connection:
        ensure_topics(connection, ["shop_later"], NOW)
        assert read_catalog(connection).event_types["shop_later"].publisher_id is None
        south = ids(connection)["south"]
        claim_topic(connection, south, "shop_later", NOW)
        assert read_catalog(connection).event_types["shop_later"].publisher_id == south


@pytest.mark.parametrize(
    ("login", "name"),
    [
        ("north", "orders"),
        ("north", "stock"),
        ("north", "shop"),
        ("north", "shop_\n"),
        ("root", "shop_orders"),
        ("emitter_1", "shop_orders"),
        ("north", "shop_" + "x" * 255),
    ],
)
def test_a_profile_bounds_the_names(url: str, login: str, name: str) -> None:
    with writing(url) as connection:
        version = read_version(connection)
        with pytest.raises(ConfigurationError) as refusal:
            claim_topic(connection, ids(connection)[login], name, NOW)
        assert read_version(connection) == version
    assert code_of(refusal) == "type_not_allowed"


def test_an_operators_type_is_nobodys_topic(url: str) -> None:
    with writing(url) as connection:
        types = {"shop_own": EventTypeSpec("shop_own", False, {})}
        apply(connection, make_plan(read_stored(connection), BusSpec(event_types=types)), NOW)
        north = ids(connection)["north"]
        for act in (claim_topic, remove_topic):
            with pytest.raises(ConfigurationError) as refusal:
                act(connection, north, "shop_own", NOW)
            assert code_of(refusal) == "type_not_allowed"
        stored = read_stored(connection)
        without = stored.in_use.without(Section.EVENT_TYPE, "shop_own")
        apply(connection, make_plan(stored, without, prune=True), NOW)
        with pytest.raises(ConfigurationError) as refusal:
            claim_topic(connection, north, "shop_own", NOW)
    assert code_of(refusal) == "type_not_allowed"


def test_a_removed_topic_is_free_again(url: str) -> None:
    with writing(url) as connection:
        north, south, root = (ids(connection)[login] for login in ("north", "south", "root"))
        claim_topic(connection, north, "shop_orders", NOW)
        with pytest.raises(ConfigurationError) as refusal:
            remove_topic(connection, south, "shop_orders", NOW)
        assert code_of(refusal) == "type_not_allowed"
        remove_topic(connection, north, "shop_orders", NOW)
        with pytest.raises(ConfigurationError) as refusal:
            remove_topic(connection, north, "shop_orders", NOW)
        assert code_of(refusal) == "unknown_type"
        claim_topic(connection, south, "shop_orders", NOW)
        assert read_catalog(connection).event_types["shop_orders"].publisher_id == south
        remove_topic(connection, root, "shop_orders", NOW)
        assert "shop_orders" not in read_catalog(connection).event_types


def test_a_topic_that_others_name_stays(url: str) -> None:
    with writing(url) as connection:
        north = ids(connection)["north"]
        claim_topic(connection, north, "shop_orders", NOW)
        profiles = {"others": ProfileSpec("others", frozenset({"shop_orders"}))}
        apply(connection, make_plan(read_stored(connection), BusSpec(profiles=profiles)), NOW)
        with pytest.raises(ConfigurationError) as refusal:
            remove_topic(connection, north, "shop_orders", NOW)
        assert code_of(refusal) == "type_in_use"
        assert "shop_orders" in read_catalog(connection).event_types


def test_topics_and_clients_are_what_a_bus_file_says_afterwards(url: str) -> None:
    with writing(url) as connection:
        root, north = ids(connection)["root"], ids(connection)["north"]
        claim_topic(connection, north, "shop_orders", NOW)
        add_client_token(connection, root, "east", None, NOW)
        stored = read_stored(connection)
        assert make_plan(stored, stored.in_use, prune=True).changes == ()
        assert stored.in_use.emitters["east"] == EmitterSpec("east", "shops")
        assert stored.in_use.profiles["registrars"].clients == "shops"


def test_a_registrar_makes_sees_and_revokes_its_clients_tokens(url: str) -> None:
    with writing(url) as connection:
        root = ids(connection)["root"]
        first = add_client_token(connection, root, "east", None, NOW)
        second = add_client_token(connection, root, "east", "east--0123456789abcdef", NOW)
        assert second == "east--0123456789abcdef"
        assert [each.name for each in list_api_tokens(connection)] == ["east", "east 2"]
        assert {(each.client, each.token_hash) for each in list_client_tokens(connection, root)} == {
            ("east", token_hash(first)),
            ("east", token_hash(second)),
        }
        assert revoke_client_token(connection, root, first, NOW)
        assert not revoke_client_token(connection, root, first, NOW)
        assert revoke_client_token(connection, root, token_hash(second).hex(), NOW)
        assert list_api_tokens(connection) == []


@pytest.mark.parametrize("login", ["emitter_1", "root"])
def test_a_registrar_reaches_no_other_emitter(url: str, login: str) -> None:
    with writing(url) as connection:
        root = ids(connection)["root"]
        with pytest.raises(ConfigurationError) as refusal:
            add_client_token(connection, root, login, None, NOW)
        assert code_of(refusal) == "name_taken"
        # Nor does it bring one back.
        removed = sa.update(model.emitter).where(model.emitter.c.login == "emitter_2").values(removed_at=NOW)
        connection.execute(removed)
        with pytest.raises(ConfigurationError) as refusal:
            add_client_token(connection, root, "emitter_2", None, NOW)
        assert code_of(refusal) == "name_taken"


def test_others_make_no_tokens(url: str) -> None:
    with writing(url) as connection:
        north = ids(connection)["north"]
        with pytest.raises(ConfigurationError) as refusal:
            add_client_token(connection, north, "mine", None, NOW)
        assert code_of(refusal) == "clients_not_allowed"
        with pytest.raises(ConfigurationError) as refusal:
            list_client_tokens(connection, north)
        assert code_of(refusal) == "clients_not_allowed"


def test_clients_have_to_be_a_profile(url: str) -> None:
    with reading(url) as connection:
        bus = BusSpec(profiles={"registrars": ProfileSpec("registrars", frozenset(), clients="nobody")})
        (problem,) = make_plan(read_stored(connection), bus).problems
    assert problem.place == ("emitter_profile", "registrars", "clients")


def test_a_renamed_profile_keeps_its_registrars(url: str) -> None:
    with writing(url) as connection:
        profiles = {"markets": ProfileSpec("markets", frozenset(), renamed_from="shops", new_types="shop_*")}
        plan = make_plan(read_stored(connection), BusSpec(profiles=profiles))
        assert not plan.problems
        apply(connection, plan, NOW)
        assert read_stored(connection).in_use.profiles["registrars"].clients == "markets"


def test_an_empty_log_has_nobody_waiting(url: str) -> None:
    with reading(url) as connection:
        assert count_waiting(connection, 10) == 0


def wish(
    *topics: str, url: str = "https://app.example/events", secret: str = "key", timeout: int = 500, most: int = 100
) -> SubscriptionWish:
    return SubscriptionWish(topics, url, secret, timeout, most)


def subscribed(connection: sa.Connection) -> dict[str, list[str]]:
    root = ids(connection)["root"]
    return {each.name: sorted(each.spec.event_types) for each in list_subscribers(connection, root, NOW)}


def test_an_emitter_subscribes_and_unsubscribes(url: str) -> None:
    with writing(url) as connection:
        north, south = ids(connection)["north"], ids(connection)["south"]
        claim_topic(connection, north, "shop_orders", NOW)
        subscribe(connection, south, wish("shop_orders", "shop_returns"), NOW)
        version = read_version(connection)
        subscribe(connection, south, wish("shop_returns", "shop_orders", "shop_orders"), NOW)
        assert subscribed(connection) == {"south": ["shop_orders", "shop_returns"]}
        assert read_version(connection) == version
        assert find_table_problems(connection) == []
        unsubscribe(connection, south, "shop_returns", NOW)
        assert subscribed(connection) == {"south": ["shop_orders"]}
        remove_subscribed(connection, north, "shop_orders", NOW)
        assert subscribed(connection) == {"south": []}, "it is a subscriber until it says that it wants no more"
        unsubscribe(connection, south, None, NOW)
        assert subscribed(connection) == {}
        with pytest.raises(ConfigurationError) as refusal:
            unsubscribe(connection, south, None, NOW)
        assert code_of(refusal) == "not_subscribed"


def test_many_new_topics_are_made_at_once_and_only_once(url: str) -> None:
    names = [f"shop_{number}" for number in range(200)]
    with writing(url) as connection:
        make_topics(connection, ids(connection)["north"], names, NOW)
        made_at = read_version(connection)
        make_topics(connection, ids(connection)["south"], names, NOW)
        assert read_version(connection) == made_at
        made = read_catalog(connection).event_types
        assert all(made[name].is_topic and made[name].publisher_id is None for name in names)
        assert read_stored(connection).in_use.event_types["orders"].nodes, "types with nodes are read as before"
        assert find_table_problems(connection) == []


def test_a_subscription_lags_as_far_as_its_operator_says_else_as_all_do(url: str) -> None:
    def limit(connection: sa.Connection) -> tuple[object, str]:
        each = read_stored(connection).in_use.subscriptions["south"]
        return each.max_lag, each.when_behind

    with writing(url) as connection:
        south = ids(connection)["south"]
        subscribe(connection, south, wish("shop_orders"), NOW)
        assert limit(connection) == (None, "alarm")
        assert read_stored(connection).in_use.subscriptions["south"].retry.attempts == ATTEMPTS
        subscribe(connection, south, replace(wish("shop_orders"), max_lag=500), NOW)
        assert limit(connection) == (500, "skip")
        own = replace(read_stored(connection).in_use.subscriptions["south"], max_lag=9, when_behind="detach")
        apply(connection, make_plan(read_stored(connection), BusSpec(subscriptions={"south": own})), NOW)
        subscribe(connection, south, replace(wish("shop_orders"), max_lag=500), NOW)
        assert limit(connection) == (9, "detach")


def test_a_subscription_that_ended_is_called_again_once_its_program_subscribes(url: str) -> None:
    state = model.subscription_state
    with writing(url) as connection:
        south = ids(connection)["south"]
        subscribe(connection, south, wish("shop_orders"), NOW)
        connection.execute(sa.update(state).values(ended_at=NOW))
        subscribe(connection, south, wish("shop_orders"), NOW)
        assert connection.execute(sa.select(state.c.ended_at)).scalar_one() is None


@pytest.mark.parametrize(
    ("login", "wanted", "code"),
    [
        ("south", wish("stock"), "type_not_allowed"),
        ("south", wish("orders"), "type_not_allowed"),
        ("south", wish("shop_own"), "unknown_type"),
        ("south", wish("shop_orders", url="ftp://app.example"), "bad_subscription"),
        ("south", wish("shop_orders", url="http://app.example"), "bad_subscription"),
        ("south", wish("shop_orders", url="https://app.example/\r\nX-Forged:yes"), "bad_subscription"),
        ("south", wish("shop_orders", url="https://app.example/\0"), "bad_subscription"),
        ("south", wish("shop_orders", url="https://app.example/\x1b[31m"), "bad_subscription"),
        ("south", wish("shop_orders", secret="a:b"), "bad_subscription"),
        ("south", wish("shop_orders", secret="a" * 1025), "bad_subscription"),
        ("south", wish("shop_orders", most=0), "bad_subscription"),
        ("south", wish("shop_orders", most=10_001), "bad_subscription"),
        ("south", wish("shop_orders", timeout=-1), "bad_subscription"),
        ("south", wish("shop_\n"), "type_not_allowed"),
        ("south", wish("shop_" + "x" * 300), "type_not_allowed"),
        ("taken", wish("shop_orders"), "name_taken"),
    ],
)
def test_a_subscription_that_may_not_be_is_refused(url: str, login: str, wanted: SubscriptionWish, code: str) -> None:
    with writing(url) as connection:
        bus = BusSpec(
            event_types={"shop_own": EventTypeSpec("shop_own", False, {})},
            emitters={"taken": EmitterSpec("taken", "shops")},
            subscriptions={"taken": SubscriptionSpec("taken", frozenset({"orders"}), "https://app.example")},
        )
        plan = make_plan(read_stored(connection), bus)
        assert not plan.problems
        apply(connection, plan, NOW)
        with pytest.raises(ConfigurationError) as refusal:
            subscribe(connection, ids(connection)[login], wanted, NOW)
        assert code_of(refusal) == code
        assert subscribed(connection) == {}


def test_no_program_takes_an_operators_subscription(url: str) -> None:
    own = SubscriptionSpec("south", frozenset({"orders"}), "https://app.example", format="routemaster", verify=False)
    with writing(url) as connection:
        apply(connection, make_plan(read_stored(connection), BusSpec(subscriptions={"south": own})), NOW)
        south = ids(connection)["south"]
        with pytest.raises(ConfigurationError) as refusal:
            subscribe(connection, south, wish("shop_orders"), NOW)
        assert code_of(refusal) == "name_taken"
        with pytest.raises(ConfigurationError) as refusal:
            unsubscribe(connection, south, None, NOW)
        assert code_of(refusal) == "not_subscribed"
        assert read_stored(connection).in_use.subscriptions["south"].event_types == {"orders"}


def test_a_topic_that_an_operator_removed_comes_back_by_no_push(url: str) -> None:
    with writing(url) as connection:
        north = ids(connection)["north"]
        claim_topic(connection, north, "shop_orders", NOW)
        stored = read_stored(connection)
        without = stored.in_use.without(Section.EVENT_TYPE, "shop_orders")
        apply(connection, make_plan(stored, without, prune=True), NOW)
        with pytest.raises(ConfigurationError) as refusal:
            claim_topic(connection, north, "shop_orders", NOW)
        assert code_of(refusal) == "type_not_allowed"
        types = {"shop_orders": EventTypeSpec("shop_orders", False, {})}
        apply(connection, make_plan(read_stored(connection), BusSpec(event_types=types)), NOW)
        assert read_catalog(connection).event_types["shop_orders"].publisher_id is None


def test_a_client_that_comes_back_has_no_password(url: str) -> None:
    with writing(url) as connection:
        root = ids(connection)["root"]
        stored = read_stored(connection)
        connection.execute(sa.update(model.emitter).values(password_hash="of old"))
        apply(connection, make_plan(stored, stored.in_use.without(Section.EMITTER, "south"), prune=True), NOW)
        add_client_token(connection, root, "south", None, NOW)
        password = sa.select(model.emitter.c.password_hash).where(model.emitter.c.login == "south")
        assert connection.execute(password).scalar_one() is None
