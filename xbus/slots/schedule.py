"""The slots of a cron expression."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from xbus.errors import ConfigurationError


class Schedule:
    """The slots of a cron expression.

    Args:
        cron: five fields as crontab(5) has them; or six, the first of which is the second.
        timezone: a zone of the IANA database, such as ``Europe/Paris``.

    Raises:
        ConfigurationError: the expression is invalid (``bad_cron``) or never comes due (``cron_never_due``), or the
            zone is unknown (``unknown_timezone``).
    """

    def __init__(self, cron: str, timezone: str = "UTC") -> None:
        self._cron = cron
        self._zone = UTC if timezone == "UTC" else _zone(timezone)
        try:
            CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise ConfigurationError(
                f"{cron!r:.80} is no cron expression ({error})",
                'write five fields, such as "0 3 * * *": minute, hour, day, month, day of the week',
                code="bad_cron",
            ) from None
        if self.after(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ConfigurationError(f"{cron!r:.80} never comes due", "name a day that exists", code="cron_never_due")

    def after(self, moment: datetime) -> datetime | None:
        """Compute the first slot after a moment; None where none comes within 50 years."""
        # When the clock is set back, cronsim may begin an hour before the moment, as it looks at the clock's face.
        found = (slot.astimezone(UTC) for slot in CronSim(self._cron, moment.astimezone(self._zone)))
        return next((slot for slot in found if slot > moment), None)

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Iterate over the slots after one moment, up to and with another."""
        slot = self.after(after)
        while slot is not None and slot <= until:
            yield slot
            slot = self.after(slot)

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """Find the last slot after one moment, up to and with another, without a look at all others."""
        span = timedelta(minutes=1)
        while True:
            # The window grows, so that rare slots take few looks and frequent ones are not all computed.
            begin = max(after, until - span)
            found = max(self.between(begin, until), default=None)
            if found is not None or begin == after:
                return found
            span *= 8


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # The name may be a path outside the database, or a folder in it.
    except (KeyError, ValueError, OSError):
        raise ConfigurationError(
            f"{name!r:.80} is no time zone of this machine",
            "take a name of the IANA database, such as Europe/Paris; the package tzdata brings it",
            code="unknown_timezone",
        ) from None
