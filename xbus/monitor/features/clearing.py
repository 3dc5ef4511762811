"""Clearing: items that consumers keep for a person, and the values that the person gives them.

Details and clearing are envelopes of the emitter of ``[monitor] clearing_login``; the list is read in the clearing
databases that consumers announce.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated
from urllib.parse import quote

import click
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from xbus.admin.clearing_databases import ClearingList, clearing_databases, of_clearing_item, read_all
from xbus.admin.repair.payload import as_json, mask_details, read_json
from xbus.admin.signatures import UNSAID, BusAction, CommandBus, argument, typed
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.config import Config
from xbus.config.reaching import reachable
from xbus.emitter import Emitter
from xbus.errors import Refused, XbusError
from xbus.monitor.features.envelopes import Limit
from xbus.monitor.queries import ClearingQuery, ItemId
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor, link
from xbus.monitor.rest import ObjectResponse
from xbus.monitor.shield import status_of
from xbus.rights import Right
from xbus.rpc.codec import Key, Value
from xbus.rpc.curve import read_password

ANSWER_SECONDS = 5.0
"""Seconds to wait for the broker and for a consumer. More keep a thread from other pages, fewer fail under load."""


class ClearingDesk:
    """Finds, shows and clears items; blocks, and opens a connection of its own each time.

    Args:
        config: names the front, and the emitter that asks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def is_open(self) -> bool:
        """True if the configuration names an emitter that asks."""
        return bool(self._config.monitor.clearing_login)

    def list_items(self, state: str | None, request_type: str | None, before: int | None, limit: int) -> ClearingList:
        """List items of all consumers, the newest of each first.

        Args:
            state: one of ``CLEARING_STATES``; None for all.
            request_type: only of the consumer that answers requests of this event type; None for all.
            before: an id; only items below it.
            limit: the most items of one consumer.

        Raises:
            Refused: the emitter may not log in.
            Failed: the broker does not answer.
        """
        with self._emitter() as emitter:
            databases = list(clearing_databases(emitter.consumers(timeout=ANSWER_SECONDS), request_type))
        return read_all(databases, state, before, limit)

    def details(self, request_type: str, item_id: int) -> list[Value]:
        """Ask a consumer for the details of an item.

        Raises:
            Refused: the consumer refuses (``reply_refused``), or the emitter may not ask so.
            Failed: no reply comes.
        """
        return self._ask(request_type, {"action": "get_item_details", "item_id": item_id})

    def clear(self, request_type: str, item_id: int, values: Mapping[Key, Value]) -> list[Value]:
        """Give a consumer the values of an item; its answer has the item's new details.

        Raises:
            Refused: the consumer refuses (``reply_refused``): nothing has changed.
            Failed: no reply comes: nothing has changed.
        """
        return self._ask(request_type, {"action": "clear_item", "item_id": item_id, "values": dict(values)})

    def _ask(self, request_type: str, request: Mapping[str, object]) -> list[Value]:
        with self._emitter() as emitter:
            reply = emitter.ask(request_type, request, timeout=ANSWER_SECONDS)
        return list(reply) if isinstance(reply, list | tuple) else [reply]

    def _emitter(self) -> Emitter:
        monitor = self._config.monitor
        if not self.is_open:
            raise Refused(
                "the monitor has no emitter that asks consumers",
                "give [monitor] clearing_login and clearing_password_file, as docs/clearing.md says",
                code="no_clearing_login",
            )
        front = reachable(self._config.zmq.frontsocket, "front")
        return Emitter(
            front,
            monitor.clearing_login,
            "" if monitor.clearing_password_file is None else read_password(monitor.clearing_password_file),
            answer_seconds=ANSWER_SECONDS / 2,
            retry_seconds=ANSWER_SECONDS,
            pause_seconds=ANSWER_SECONDS,
        )


router = APIRouter(prefix="/clearing")

PAGE_ROWS = 50


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[ClearingQuery, Query()]) -> HTMLResponse:
    """Show the items that wait, the newest of each consumer first."""
    desk = ClearingDesk(bus.config)
    if not desk.is_open:
        return page("clearing/closed.html")
    try:
        found = desk.list_items(query.wanted_state, query.type or None, query.before, PAGE_ROWS)
    except XbusError as error:
        found = ClearingList([], [error], None)
        return page("clearing/list.html", status=status_of(error), found=found, shown=[], query=query, more=None)
    shown = found.shown(bus.read(read_secret_fields))
    more = None if found.below is None else link("/clearing", **{**query.model_dump(), "before": found.below})
    return page("clearing/list.html", found=found, shown=shown, query=query, more=more)


@router.get("/{request_type}/{item_id}")
def show(bus: TheBus, page: ThePage, request_type: str, item_id: ItemId) -> HTMLResponse:
    """Show what the consumer says about an item."""
    secrets = bus.read(read_secret_fields)
    details = ClearingDesk(bus.config).details(request_type, item_id)
    return page(
        "clearing/show.html",
        details=mask_details(details, secrets),
        request_type=request_type,
        item_id=item_id,
        here=f"/clearing/{quote(request_type, safe='')}/{item_id}",
    )


api = APIRouter(prefix="/clearing", tags=["clearing"], default_response_class=ObjectResponse)


@api.get("", operation_id="list_clearing")
def list_json(
    bus: TheBus, _: TheVisitor, query: Annotated[ClearingQuery, Query()], limit: Limit = 20
) -> ObjectResponse:
    """List items of all consumers, the newest of each first. ``errors`` names the databases that can't be read."""
    listed = ClearingDesk(bus.config).list_items(query.wanted_state, query.type or None, query.before, limit)
    shown = listed.shown(bus.read(read_secret_fields))
    found = [of_clearing_item(item, payload.plain, database) for item, database, payload in shown]
    errors = [{"code": error.code, "cause": error.cause, "next_step": error.next_step} for error in listed.errors]
    after = None if listed.below is None else {"before": listed.below}
    return ObjectResponse({"found": found, "next": after, "errors": errors})


@api.get("/{request_type}/{item_id}", operation_id="show_clearing")
def show_json(bus: TheBus, _: TheVisitor, request_type: str, item_id: ItemId) -> ObjectResponse:
    """Show what a consumer says about an item."""
    secrets = bus.read(read_secret_fields)
    details = ClearingDesk(bus.config).details(request_type, item_id)
    return ObjectResponse({"details": [as_json(each) for each in mask_details(details, secrets)]})


MOST_LETTERS = 100_000


class ClearItem(BusAction):
    """Give a consumer the values of an item that it could not understand."""

    path = "clearing/clear"
    title = "Clear"
    right = Right.CLEARER

    type: str = argument(longest=255)
    item_id: int = argument(click.IntRange(-(2**63), 2**63 - 1))
    values: str = typed(
        "Values", 'A map in JSON, such as {"email": "ada@example.org"}.', asked="text", longest=MOST_LETTERS
    )

    def command(self) -> list[str]:
        words = ["xbus", "clearing", "clear", str(self.item_id), "--type", self.type]
        if self.values == UNSAID:
            return [*words, UNSAID]
        return words + [f"{name!s}={json.dumps(value, ensure_ascii=False)}" for name, value in self.read().items()]

    def typed(self, bus: CommandBus) -> Mapping[str, str]:
        return {"values": "{\n}"}

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield f"The consumer gets the values of item {self.item_id}, by a request of the type {self.type}."

    def read(self) -> Mapping[Key, Value]:
        """Read the values.

        Raises:
            Refused: they are no map in JSON, or it is empty (``bad_values``).
        """
        values = read_json(self.values)
        if not isinstance(values, dict) or not values:
            raise Refused("the values are no map", 'write them as {"name": "value"}', code="bad_values")
        return values

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        values = self.read()
        desk = ClearingDesk(bus.config)
        # First, so that nothing is cleared without an act. The values stay out of the audit, which outlives them.
        with bus.writing() as connection:
            item = f"item {self.item_id} of {self.type}"
            note_acts(connection, [act_here(bus.now(), "cleared", item, after=", ".join(map(str, values)))])
        desk.clear(self.type, self.item_id, values)
        yield f"The consumer has taken the values of item {self.item_id}."


ACTIONS = (ClearItem,)
