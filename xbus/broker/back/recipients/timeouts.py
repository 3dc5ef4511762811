"""The time-outs of the calls to recipients; pure."""

from dataclasses import dataclass

from xbus.config import BackSettings


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """The seconds that a recipient has for each kind of answer."""

    start_event: float
    send_item: float
    end_event: float
    end_envelope: float
    stop_envelope: float

    @classmethod
    def of(cls, settings: BackSettings) -> "CallTimeouts":
        """Take them from the configuration."""
        return cls(
            settings.start_event_timeout,
            settings.send_item_timeout,
            settings.end_event_timeout,
            settings.end_envelope_timeout,
            settings.stop_envelope_timeout,
        )

    @property
    def longest(self) -> float:
        """For how long a recipient may be busy with one call."""
        return max(self.start_event, self.send_item, self.end_event, self.end_envelope, self.stop_envelope)
