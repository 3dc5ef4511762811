"""What is asked for: read from the environment, as ``make`` hands it on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATABASES = ("sqlite", "postgresql")
PEAK_RSS_MIB = 256.0
"""Half as much again as it takes, most of which is for hashing passwords at logins. What grows with the traffic is far
above it after 500 cycles."""


@dataclass(frozen=True)
class Settings:
    """How to torture.

    Args:
        cycles: how many.
        seed: of the faults.
        database: ``sqlite`` or ``postgresql``.
        faults: ``all``, or kinds separated by commas.
        peak_rss_mib: more memory the broker must not take, in MiB.
        folder: where the files go; None for a new one, which goes where all was well.
    """

    cycles: int = 20
    seed: int = 7
    database: str = "sqlite"
    faults: str = "all"
    peak_rss_mib: float = PEAK_RSS_MIB
    folder: Path | None = None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """The settings in the variables CYCLES, SEED, DB, FAULTS, RSS and FOLDER, where they are set.

    Raises:
        ValueError: a value makes no sense.
    """
    usual = Settings()
    database = environment.get("DB") or usual.database
    if database not in DATABASES:
        raise ValueError(f"DB={database}: choose one of {', '.join(DATABASES)}")
    folder = environment.get("FOLDER")
    return Settings(
        cycles=int(environment.get("CYCLES") or usual.cycles),
        seed=int(environment.get("SEED") or usual.seed),
        database=database,
        faults=environment.get("FAULTS") or usual.faults,
        peak_rss_mib=float(environment.get("RSS") or usual.peak_rss_mib),
        folder=Path(folder).absolute() if folder else None,
    )
