"""Finds the sample of a configuration file, which lists every option with its default and its meaning."""

from pathlib import Path

from xbus.errors import ConfigurationError

HERE = Path(__file__).parent
NAME = "config.ini.sample"
PLACES = (HERE / NAME, HERE.parents[1] / NAME)
"""In this package if it is installed, at the top of a checkout."""


def sample() -> str:
    """Read the sample.

    Raises:
        ConfigurationError: it is missing from this installation.
    """
    for place in PLACES:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise ConfigurationError(f"{NAME} is missing from this installation", "install xbusd again")
