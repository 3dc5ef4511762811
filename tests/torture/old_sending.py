"""How an emitter under torture sends by the verbs of 0.2.0."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tests.support.bus import PASSWORD
from tests.torture.sending import ANSWER_SECONDS, INSIST_SECONDS, Draft, Way
from xbus.errors import CallError, Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context


class Old(Way):
    """By the verbs of 0.2.0, item by item; nothing but their answers is known."""

    most_items = 6
    most_events = 2
    orders = False

    async def __aenter__(self) -> "Old":
        self._context = new_context()
        self._client = Client(self._context, name=self.front)
        self._client.connect(self.front)
        self._token = ""
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()
        self._context.destroy()

    async def send(self, draft: Draft) -> None:
        envelope_id = await self._start()
        try:
            for number, (type_name, _) in enumerate(draft.events):
                await self._send_event(draft, number, envelope_id, type_name)
        except CallError:
            await self._cancel(envelope_id)
            raise
        if draft.is_cancelled:
            await self._cancel(envelope_id)
            self.log.write(what="cancelled", ref=draft.ref)
            return
        self.sealing(draft, envelope_id)
        end_envelope = partial(self._call, "end_envelope", self._token, envelope_id)
        await self._until_taken(partial(self._insist, end_envelope), draft.count)
        self.log.write(what="sealed", ref=draft.ref, id=envelope_id, position=None)

    async def _start(self) -> str:
        while not (envelope_id := await self._insist(partial(self._call, "start_envelope", self._token))):
            self._token = await self._insist(partial(self._call, "login", self.login, PASSWORD))
        return str(envelope_id)

    async def _send_event(self, draft: Draft, number: int, envelope_id: str, type_name: str) -> None:
        event_id = await self._call("start_event", self._token, envelope_id, type_name, 0)
        acked = 0
        for item in draft.items(number):
            # Made again after a lost answer, it could be there twice; after a refusal it could not.
            send_item = partial(self._call, "send_item", self._token, envelope_id, event_id, item)
            await self._until_taken(send_item, acked)
            acked += 1
            self.log.write(what="acked", ref=draft.ref, event=number, items=acked)
        end_event = partial(self._call, "end_event", self._token, envelope_id, event_id)
        await self._until_taken(partial(self._insist, end_event), acked)
        self.log.write(what="ended", ref=draft.ref, event=number)

    async def _until_taken(self, call: Callable[[], Awaitable[Any]], acked: int) -> None:
        """Make a call until the bus takes it: a refusal may mean that its database is away.

        A beginning promises nothing and may be forgotten, but behind an acknowledged item nothing may be refused for
        long.
        """
        deadline = asyncio.get_running_loop().time() + INSIST_SECONDS
        while not _is_taken(await call()):
            if not acked:
                raise Failed("what was begun is not known any more", code="not_begun")
            if asyncio.get_running_loop().time() > deadline:
                raise Refused(f"behind {acked} acknowledged items", code="acknowledged_and_refused")
            await asyncio.sleep(0.1)

    async def _cancel(self, envelope_id: str) -> None:
        try:
            await self._call("cancel_envelope", self._token, envelope_id)
        except Failed:
            pass  # it stays open, and nobody sees it

    async def _call(self, verb: str, *arguments: Any) -> Any:
        return await self._client.call(verb, *arguments, timeout=ANSWER_SECONDS)

    async def _insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a call that may be made again."""
        deadline = asyncio.get_running_loop().time() + INSIST_SECONDS
        while True:
            try:
                return await call()
            except Failed:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.1)


def _is_taken(answer: Any) -> bool:
    """Whether an answer of 0.2.0, which may be a pair, says yes."""
    return bool(answer[0] if isinstance(answer, list | tuple) else answer)
