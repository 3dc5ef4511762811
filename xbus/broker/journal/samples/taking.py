"""Takes a sample: one short read that finds all figures of a moment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.samples import keeping
from xbus.broker.journal.samples.lags import LagReader
from xbus.broker.journal.samples.roles import RoleFigures, read_roles
from xbus.broker.journal.samples.sample import Sample, most_of
from xbus.broker.journal.samples.traffic import count_traffic


@dataclass(frozen=True, slots=True)
class TakenSample:
    """A sample, and the roles as they were when it was taken.

    Args:
        version: of the configuration.
        roles: all that are in use, by login.
    """

    version: int
    sample: Sample
    roles: Sequence[RoleFigures]


def take(connection: sa.Connection, lags: LagReader, now: datetime) -> TakenSample:
    """Take a sample that begins where the newest one ends.

    Args:
        lags: remembers what it has read before.
    """
    version, head = read_version(connection), read_head(connection)
    newest = keeping.read_newest(connection)
    roles = read_roles(connection, version, lags)
    sample = _count(connection, newest, now, head) if newest and keeping.goes_on(newest, now, head) else None
    arrears = {role.role_id: lag for role in roles if any(lag := role.arrears(now))}
    return TakenSample(
        version,
        replace(
            sample or keeping.begin(now, head),
            lag=sum(lag.lag for lag in arrears.values()),
            lag_seconds=max((lag.lag_seconds for lag in arrears.values()), default=0.0),
            parked=sum(lag.parked for lag in arrears.values()),
            roles=most_of(arrears, lambda lag: lag.lag + lag.parked),
        ),
        roles,
    )


def _count(connection: sa.Connection, newest: Sample, now: datetime, head: int) -> Sample:
    traffic = count_traffic(connection, newest.position, head)
    return Sample(
        step=keeping.STEP,
        began_at=newest.ended_at,
        ended_at=now,
        observed=(now - newest.ended_at).total_seconds(),
        position=head,
        envelopes=head - newest.position,
        events=sum(count.events for count in traffic.values()),
        items=sum(count.items for count in traffic.values()),
        traffic=most_of(traffic, lambda count: count.events),
    )
