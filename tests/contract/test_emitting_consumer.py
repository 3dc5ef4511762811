"""A node that emits answers by the rules of consumers that decide together."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

from tests.support.clock import StandingClock
from tests.support.journal import Scribe
from xbus.broker.back.chaining.emitting_consumer import EmittingConsumer
from xbus.broker.journal.journal import Journal
from xbus.rpc.codec import pack_items


def entry(number: int) -> tuple[str, list[Any]]:
    """An envelope of one item, as a call brings it."""
    return str(uuid.UUID(int=number)), [[str(uuid.UUID(int=number + 1)), "notes", [(0, 1, pack_items([b"a"]))]]]


async def test_what_is_sealed_is_told_though_the_next_can_not_be_emitted(journal: Journal, scribe: Scribe) -> None:
    catalog = scribe.catalog
    role = replace(next(iter(catalog.roles.values())), emits=catalog.event_types["notes"].id)
    emitter = replace(catalog.emitters[scribe.emitter_id()], kind="node", login=role.login)
    catalog = replace(catalog, emitters={emitter.id: emitter})
    async with asyncio.TaskGroup() as tasks:
        node = EmittingConsumer(role, journal, StandingClock(), tasks, lambda: catalog, 0.01, lambda: True)
        assert await node.call("xbus.prepare_envelopes", [entry(10)]) == [[True]]
        seal_all = node._seal_all

        async def seal_and_remove_the_type(emissions: Any) -> Any:
            nonlocal catalog
            answers = await seal_all(emissions)
            catalog = replace(catalog, event_types={})
            return answers

        node._seal_all = seal_and_remove_the_type  # type: ignore[method-assign]
        assert await node.call("xbus.commit_envelopes", [entry(10)[0]], [entry(20)]) == [[True], []]


async def test_the_last_answer_comes_before_the_node_owes_nothing(journal: Journal, scribe: Scribe) -> None:
    role = next(iter(scribe.catalog.roles.values()))
    answers: list[object] = []
    async with asyncio.TaskGroup() as tasks:
        node = EmittingConsumer(role, journal, StandingClock(), tasks, lambda: scribe.catalog, 0.01, lambda: True)
        node.ask("ping", ("here",), lambda answer, error: answers.append(answer))
        assert node.owed == 1
        await node.settled()
        assert (node.owed, answers) == (0, ["here"])
