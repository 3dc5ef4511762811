"""The doctor's look at the configuration: its options, and who may read the secrets in it."""

import stat
from collections.abc import Iterator
from pathlib import Path

from xbus import logs
from xbus.admin.doctor.findings import DoctorFinding, of_error
from xbus.config import Config, ConfigReading, Option, without_secrets, written
from xbus.config.plaintext import plaintext_problems
from xbus.errors import XbusError

CONFIGURATION = "configuration"


def look_at_configuration(found: ConfigReading, path: Path | None) -> Iterator[DoctorFinding]:
    """Find wrong options, and a file with secrets that everybody may read.

    Args:
        found: the configuration as it was read.
        path: its file, if it has one.
    """
    about = CONFIGURATION if path is None else str(path)
    for problem in (*found.problems, *problems_in_use(found.config)):
        yield of_error(problem, about)
    # The broker's group may read it: docs/production.md installs it so.
    if path is not None and path.stat().st_mode & stat.S_IROTH and _has_secret(found, path):
        yield DoctorFinding(
            "configuration_open_to_others",
            about,
            "everybody on this machine may read the file, and it has a secret in it",
            f"chmod 640 {path}, and give it to the group of the broker",
        )


def problems_in_use(config: Config) -> Iterator[XbusError]:
    """Find the problems that only show when the configuration is used, without a look at the database."""
    yield from plaintext_problems(config)
    try:
        logs.check(config.logging)
    except XbusError as error:
        yield error


def _has_secret(found: ConfigReading, path: Path) -> bool:
    return any(source == str(path) and _is_secret(option, found) for option, source in found.sources.items())


def _is_secret(option: Option, found: ConfigReading) -> bool:
    value = written(getattr(getattr(found.config, option.section), option.field))
    return option.is_secret and without_secrets(value) != value
