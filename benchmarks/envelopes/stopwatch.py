"""Times what a program sends, from the moment when all its clients are logged in: a login takes the broker long."""

from collections.abc import Sequence
from time import monotonic, process_time

from benchmarks.percentiles import percentile
from benchmarks.processes import cpu_seconds

MS = 1_000


class Stopwatch:
    """Begins when it is made.

    Args:
        server_pids: the processes of the broker, or of another server.
    """

    def __init__(self, *server_pids: int) -> None:
        self._server_cpu = cpu_seconds(*server_pids)
        self._cpu = process_time()
        self._began = monotonic()

    def report(self, seconds: Sequence[float]) -> dict[str, float]:
        """Give what is to be printed, now that all is sent.

        Args:
            seconds: how long each envelope took until it was acknowledged.
        """
        return {
            "began": self._began,
            "ended": monotonic(),
            "cpu": process_time() - self._cpu,
            "server_cpu_before": self._server_cpu,
            **{f"p{percent}_ms": percentile(seconds, percent) * MS for percent in (50, 99)},
        }
