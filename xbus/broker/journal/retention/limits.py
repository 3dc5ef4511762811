"""Limits of lags: how far a consumer role or a reader may be behind, as the bus file says it."""

from datetime import timedelta
from typing import Literal, TypeAlias

import sqlalchemy as sa

from xbus.clock import span
from xbus.model import lag_limit

WhenBehind: TypeAlias = Literal["alarm", "detach", "skip"]
LimitOf: TypeAlias = Literal["role", "reader"]


def write_limit(
    connection: sa.Connection, kind: LimitOf, subject_id: int, max_lag: int | timedelta | None, when_behind: WhenBehind
) -> None:
    """Set the limit of a role, or of the service of a reader; None means no limit."""
    of_subject = (lag_limit.c.kind == kind, lag_limit.c.subject_id == subject_id)
    connection.execute(sa.delete(lag_limit).where(*of_subject))
    if max_lag is not None:
        limit = {"seconds": max_lag.total_seconds()} if isinstance(max_lag, timedelta) else {"envelopes": max_lag}
        row = {"kind": kind, "subject_id": subject_id, "when_behind": when_behind, **limit}
        connection.execute(sa.insert(lag_limit).values(row))


def limit_of(envelopes: int | None, seconds: float | None) -> int | timedelta | None:
    """Give the limit that a row says; None where it says none."""
    return envelopes if seconds is None else span(seconds)
