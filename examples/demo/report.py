"""What the demo tells at its end."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from examples.demo.check import Finding
from examples.demo.delay_counter import file_of
from examples.demo.flight_store import FILE
from examples.demo.program import script


def table(findings: Iterable[Finding]) -> Iterator[str]:
    """What went where, and whether it is what the source says."""
    line = "{:<34} {:<16} {:>9} {:>9}  {}"
    yield line.format("WHAT", "WHERE", "EXPECTED", "FOUND", "").rstrip()
    for finding in findings:
        verdict = "ok" if finding.is_right else "WRONG"
        yield line.format(finding.what, finding.where, f"{finding.expected:,}", f"{finding.found:,}", verdict).rstrip()


def times(seconds: Mapping[str, float]) -> str:
    """How long each part took."""
    parts = ", ".join(f"{part} {took:.1f} s" for part, took in seconds.items())
    return f"Time:            {parts}; in all {sum(seconds.values()):.1f} s"


def files(folder: Path, database: str, envelope_id: str) -> Iterator[str]:
    """Where to look further."""
    yield f"Journal:         {database}"
    yield f"Flights:         {folder / FILE}"
    yield f"Delays:          {folder / file_of(envelope_id)}"
    yield f"Logs:            {folder}/*.log"
    yield f"Look further:    {script('xbus')} envelope show -c {folder / 'config.ini'} {envelope_id}"
