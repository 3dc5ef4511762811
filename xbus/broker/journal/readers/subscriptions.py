"""Subscriptions as gateways and people need them, and how their calls went.

A reader of a subscription is read by gateways. A call that fails counts here; one that goes well ends the count.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, act_here, note_acts
from xbus.errors import Refused

_ROW, _STATE = model.subscription.c, model.subscription_state.c


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A call of a subscriber that failed.

    Args:
        code: for programs.
        error: for people.
        retry_at: until when nobody calls.
        is_end: whether the subscriber wants no more.
    """

    code: str
    error: str
    retry_at: datetime | None = None
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """A subscription in use; ``model.subscription`` and ``model.subscription_state`` explain its fields.

    Args:
        reader: the key of its reader.
        reader_name: the name of its reader.
    """

    service_id: int
    name: str
    reader: str
    reader_name: str
    url: str
    format: str
    verify: bool
    ranges: int
    failures: int
    failing_since: datetime | None
    failed_at: datetime | None
    retry_at: datetime | None
    code: str | None
    error: str | None
    ended_at: datetime | None
    secret: str = field(repr=False)

    @property
    def settings(self) -> str:
        """The id of the settings that a call is made with."""
        return _id_of_settings(self.url, self.format, self.verify, self.secret)


def list_subscriptions(connection: sa.Connection) -> list[SubscriptionEntry]:
    """List the subscriptions in use, by name."""
    service = model.service.c
    columns: Sequence[sa.ColumnElement[Any]] = (
        *(_ROW.service_id, _ROW.name, service.key, service.name, _ROW.url, _ROW.format, _ROW.verify),
        *(model.reader.c.ranges, _STATE.failures, _STATE.failing_since, _STATE.failed_at, _STATE.retry_at),
        *(_STATE.code, _STATE.error, _STATE.ended_at, _ROW.secret),
    )
    rows = connection.execute(
        sa.select(*columns)
        .select_from(model.subscription)
        .join(model.service, service.id == _ROW.service_id)
        .join(model.reader, model.reader.c.service_id == _ROW.service_id)
        .join(model.subscription_state, _STATE.service_id == _ROW.service_id)
        .where(_ROW.removed_at.is_(None))
        .order_by(_ROW.name)
    )
    return [SubscriptionEntry(*row) for row in rows]


def find_subscription(connection: sa.Connection, name: str) -> SubscriptionEntry:
    """Find a subscription in use.

    Raises:
        Refused: there is none of this name (``unknown_name``).
    """
    found = next((each for each in list_subscriptions(connection) if each.name == name), None)
    if found is None:
        cause = f'there is no subscription "{name}"'
        raise Refused(cause, "xbus subscription list shows all subscriptions", code="unknown_name")
    return found


def _id_of_settings(url: str, body_format: str, verify: bool, secret: str) -> str:
    content = json.dumps([url, body_format, verify, secret], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]


def check_settings(connection: sa.Connection, service_id: int, settings: str | None) -> None:
    """Let a call pass that was made with the settings in force: no other call says anything of the subscriber.

    The caller holds a row that :func:`call_at_once` writes, so the settings stay until its transaction ends.

    Args:
        service_id: the subscription's reader.
        settings: the id of the settings that the call was made with; None for a gateway that does not say.

    Raises:
        Refused: others are in force by now (``settings_changed``).
    """
    if settings is None:
        return
    columns = (_ROW.url, _ROW.format, _ROW.verify, _ROW.secret)
    row = connection.execute(sa.select(*columns).where(_ROW.service_id == service_id)).one_or_none()
    if row is None or _id_of_settings(*row) != settings:
        cause = "the subscription has other settings than those that the call was made with"
        raise Refused(cause, "ask for the subscriptions, and call with the settings in force", code="settings_changed")


def note_call(
    connection: sa.Connection, reader: str, failure: CallFailure | None, settings: str | None, at: datetime
) -> None:
    """Note how a call went; a success counts where calls failed before.

    Args:
        reader: the key of the subscription's reader.
        failure: None where all went well.
        settings: as of :func:`check_settings`.

    Raises:
        Refused: as of :func:`check_settings`.
    """
    locked = sa.select(_STATE.service_id).join(model.service, model.service.c.id == _STATE.service_id)
    locked = locked.where(model.service.c.key == reader).with_for_update(of=model.subscription_state)
    own = connection.execute(locked).scalar_one_or_none()
    if own is None:
        return
    check_settings(connection, own, settings)
    of_own = sa.update(model.subscription_state).where(_STATE.service_id == own)
    if failure is None:
        connection.execute(of_own.where(_STATE.failures > 0, _STATE.ended_at.is_(None)).values(_WELL))
        return
    connection.execute(
        of_own.values(
            failures=_STATE.failures + 1,
            failing_since=sa.func.coalesce(_STATE.failing_since, at),
            failed_at=at,
            retry_at=failure.retry_at,
            code=failure.code,
            error=failure.error,
            ended_at=at if failure.is_end else _STATE.ended_at,
        )
    )


def call_at_once(connection: sa.Connection, service_id: int, *, ends_the_end: bool) -> None:
    """Have a subscription called at once that waits after calls that failed.

    Args:
        service_id: its reader.
        ends_the_end: whether one that its subscriber has ended goes on.
    """
    values = {_STATE.retry_at: None} | ({_STATE.ended_at: None} if ends_the_end else {})
    connection.execute(sa.update(model.subscription_state).where(_STATE.service_id == service_id).values(values))
    of_reader = model.reader_range.c.service_id == service_id
    connection.execute(sa.update(model.reader_range).where(of_reader).values(retry_at=None))


def find_ended(connection: sa.Connection, name: str) -> SubscriptionEntry:
    """Find a subscription that its subscriber has ended.

    Raises:
        Refused: there is none of this name (``unknown_name``), or it has not ended (``not_ended``).
    """
    found = find_subscription(connection, name)
    if found.ended_at is None:
        next_step = f"xbus resume service {quote(found.reader_name)} ends a pause"
        raise Refused(f'the subscriber of "{name}" has not ended it', next_step, code="not_ended")
    return found


def resume_subscription(connection: sa.Connection, name: str, decision: RepairDecision) -> None:
    """Have a subscription go on that its subscriber has ended; it raises as :func:`find_ended`."""
    found = find_ended(connection, name)
    connection.execute(
        sa.update(model.subscription_state)
        .where(_STATE.service_id == found.service_id)
        .values(_WELL | {"ended_at": None})
    )
    thing = f'subscription "{name}"'
    note_acts(connection, [act_here(decision.at, "resumed", thing, before="ended", reason=decision.reason)])


_WELL: dict[str, object] = {
    "failures": 0,
    "failing_since": None,
    "failed_at": None,
    "retry_at": None,
    "code": None,
    "error": None,
}


def ended_readers(entries: Sequence[SubscriptionEntry]) -> set[str]:
    """Give the names of the readers whose subscribers want no more."""
    return {each.reader_name for each in entries if each.ended_at is not None}
