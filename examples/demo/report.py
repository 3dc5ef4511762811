"""What the demo tells at its end."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sqlalchemy.engine import make_url

from examples.demo.bus import Bus
from examples.demo.check import Finding
from examples.demo.program import script
from xbus.config import load


def table(findings: Iterable[Finding]) -> Iterator[str]:
    """What went where, and whether it is what the source says."""
    line = "{:<34} {:<16} {:>10} {:>10}  {}"
    yield line.format("WHAT", "WHERE", "EXPECTED", "FOUND", "").rstrip()
    for finding in findings:
        verdict = "ok" if finding.is_right else "WRONG"
        yield line.format(finding.what, finding.where, f"{finding.expected:,}", f"{finding.found:,}", verdict).rstrip()


def times(seconds: Mapping[str, float]) -> str:
    """How long each part took."""
    parts = ", ".join(f"{part} {took:.1f} s" for part, took in seconds.items())
    return f"Time:            {parts}; in all {sum(seconds.values()):.1f} s"


def files(bus: Bus, envelope_id: str, results: Mapping[str, Path]) -> Iterator[str]:
    """Where to look further.

    Args:
        bus: that of the demo.
        envelope_id: what was sent.
        results: the files that came of it, in the bus's folder, by what is in them.
    """
    journal = make_url(load(bus.config).database.url).render_as_string(hide_password=True)
    yield f"{'Journal:':<16} {journal}"
    for what, file in results.items():
        yield f"{what + ':':<16} {bus.folder / file}"
    yield f"{'Logs:':<16} {bus.folder}/*.log"
    yield f"{'Look further:':<16} {script('xbus')} envelope show -c {bus.config} {envelope_id}"
