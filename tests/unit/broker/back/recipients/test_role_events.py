"""Who is told of what happens to roles, and in which order."""

from collections.abc import Callable

from tests.support.back import running
from xbus.broker.back.recipients.served import RoleEvent, RoleEvents
from xbus.broker.journal.journal import Journal


def test_subscribers_are_called_in_the_order_of_their_subscriptions() -> None:
    event = RoleEvent[int]()
    calls: list[str] = []
    event.subscribe(lambda role_id: calls.append(f"first {role_id}"), lambda role_id: calls.append(f"second {role_id}"))
    event.subscribe(lambda role_id: calls.append(f"third {role_id}"))
    event.publish(7)
    assert calls == ["first 7", "second 7", "third 7"]


def test_what_a_subscriber_publishes_is_delivered_before_the_next_one_is_called() -> None:
    outer, inner = RoleEvent[int](), RoleEvent[int]()
    calls: list[str] = []
    outer.subscribe(inner.publish, lambda _: calls.append("after"))
    inner.subscribe(lambda _: calls.append("within"))
    outer.publish(7)
    assert calls == ["within", "after"]


def names(subscribers: list[Callable[..., None]]) -> list[str]:
    return [subscriber.__qualname__ for subscriber in subscribers]


async def test_every_event_of_a_role_reaches_whom_it_concerns(journal: Journal) -> None:
    async with running(journal) as broker:
        found = {name: names(event.subscribers) for name, event in vars(broker.back.events).items()}
    assert found == {
        "joined": [
            "BreakerProbes.joined",
            "OutputRequirements.joined",
            "BulkOutputs.joined",
            "LeftBehind.joined",
            "GroupDelivery.forget_ways",
        ],
        "parted": ["OutputRequirements.parted", "BulkOutputs.parted", "LeftBehind.parted", "GroupDelivery.forget_ways"],
        "arrived": ["ConsumerRoles.arrived", "Lanes.arrived", "RetryQueue.arrived"],
        "paused": [
            "ConsumerRoles.paused",
            "GroupDelivery.left",
            "Lanes.left",
            "RetryQueue.left",
            "GroupDelivery.forget_ways",
        ],
        "resumed": [
            "ConsumerRoles.arrived",
            "BreakerProbes.resumed",
            "BulkOutputs.may_begin",
            "Lanes.arrived",
            "RetryQueue.arrived",
            "GroupDelivery.forget_ways",
        ],
        "left": ["ConsumerRoles.left", "GroupDelivery.left", "Lanes.left", "RetryQueue.left"],
        "configured": ["GroupDelivery.forget_ways"],
        "gone": ["ConsumerRoles.gone"],
        "slow": ["GroupDelivery.split", "Lanes.split"],
        "caught_up": ["ConsumerGathering.caught_up"],
        "tripped": ["ConsumerRoles.tripped", "GroupDelivery.forget_ways", "GroupDelivery.left", "Lanes.left"],
        "recovered": [
            "ConsumerRoles.recovered",
            "GroupDelivery.forget_ways",
            "BulkOutputs.may_begin",
            "Lanes.arrived",
            "RetryQueue.recovered",
        ],
        "rows_due": ["RetryQueue.wake"],
        "row_moved": ["WaitingDeliveries.note"],
    }
    assert set(found) == set(vars(RoleEvents()))
