"""Notes when items come and how old they are, and what the program that takes them needs."""

from time import monotonic_ns, process_time

from benchmarks.percentiles import percentile

NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000


class Ages:
    """Begins when it is made, and anew with each report."""

    def __init__(self) -> None:
        self._cpu = process_time()
        self._first_ns = self._last_ns = 0
        self._ages_ns: list[int] = []

    def add(self, sent_ns: int | None) -> None:
        """Note an item that has come, with the time of its stamp."""
        self._last_ns = monotonic_ns()
        self._first_ns = self._first_ns or self._last_ns
        if sent_ns is not None:
            self._ages_ns.append(self._last_ns - sent_ns)

    def report(self) -> dict[str, float]:
        """Give what is to be printed: when the ``first`` and the ``last`` item came, and what all took."""
        cpu = process_time()
        report = {
            "first": self._first_ns / NS_PER_SECOND,
            "last": self._last_ns / NS_PER_SECOND,
            "cpu": cpu - self._cpu,
        }
        if self._ages_ns:
            report |= {f"p{percent}_ms": percentile(self._ages_ns, percent) / NS_PER_MS for percent in (50, 99)}
        self._cpu, self._first_ns, self._ages_ns = cpu, 0, []
        return report
