"""The figures of one airline in one month, as the consumer has them and as the plain computation finds them."""

from dataclasses import dataclass


@dataclass
class Month:
    """What became of an airline's departures in one month.

    Attributes:
        airline: its name.
        month: 1 to 12.
        flights: how many were to leave.
        cancelled: how many of them never left.
        late: how many left after their time.
        minutes: how much later those left, together.
        seats: of all departures whose plane is known.
        plane_years: the ages of the planes of all departures where they are known, in years, together.
        aged: how many departures that are.
        wet: how many left from an airport where it rained or snowed in the hour.
        wet_late: how many of them left after their time.
        wet_minutes: how much later those left, together.
    """

    airline: str
    month: int
    flights: int = 0
    cancelled: int = 0
    late: int = 0
    minutes: int = 0
    seats: int = 0
    plane_years: int = 0
    aged: int = 0
    wet: int = 0
    wet_late: int = 0
    wet_minutes: int = 0

    @property
    def left(self) -> int:
        """How many flights left."""
        return self.flights - self.cancelled

    @property
    def mean_delay(self) -> float:
        """Minutes that a departure was late; those before their time count as 0."""
        return self.minutes / self.left if self.left else 0.0
