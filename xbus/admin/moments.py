"""Moments and places of the log, as people write them in options."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

from xbus.broker.journal.log.slices import BadPlace, Start, parse_start
from xbus.clock import SystemClock

_AGO = re.compile(r"(\d+(?:\.\d+)?)(min|h|d|w)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d|w)")
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A moment: an age such as ``90d`` or ``30min``, or a date or time in ISO 8601, by default in UTC."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(value):
            try:
                return SystemClock().now() - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
            except OverflowError:
                self.fail(f"{value} is longer ago than time goes back", param, ctx)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value} is neither like 90d, 12h or 30min nor a date or time like 2026-01-31", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Duration(click.ParamType[float]):
    """A time such as ``30s``, ``5min`` or ``2h``; the command gets seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(value)
        if found is None:
            self.fail(f"{value} is not like 30s, 5min or 2h", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


class Until(click.ParamType[datetime]):
    """A moment to come: ``2h`` from now, or a date or time in ISO 8601, by default in UTC."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        now = SystemClock().now()
        if ahead := _AGO.fullmatch(value):
            moment = now + timedelta(**{_UNITS[ahead[2]]: float(ahead[1])})
        else:
            moment = Moment().convert(value, param, ctx)
        if moment <= now:
            self.fail(f"{value} is over", param, ctx)
        return moment


class PlaceOption(click.ParamType[datetime | int]):
    """A place in the log: a position, ``oldest``, or a :class:`Moment`, also with a minus before its age."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | int:
        if isinstance(value, int):
            return value
        if value == "oldest":
            return 1
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= LONGEST_POSITION:
            return int(value)
        return Moment().convert(value.removeprefix("-") if isinstance(value, str) else value, param, ctx)


class LogStart(click.ParamType[Start]):
    """A start in the log: a place as ``1234:0:500``, ``oldest``, ``head``, or a :class:`Moment` as ``-1h``."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if not isinstance(value, str):
            return cast(Start, value)
        age = value.removeprefix("-")
        if _AGO.fullmatch(age):
            return Moment().convert(age, param, ctx)
        try:
            return parse_start(value)
        except BadPlace as error:
            self.fail(str(error), param, ctx)


LONGEST_POSITION = 18
"""Digits; what the database's columns take."""
