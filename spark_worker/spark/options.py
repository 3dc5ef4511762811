"""Options of a Spark reader or writer: texts that the user gave, checked one by one."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from xbus.config import FILE_VARIABLE, Config, is_in, load
from xbus.errors import ConfigurationError

BAD_OPTION = "bad_option"
"""The code of every option that can't be used."""

Number = TypeVar("Number", int, float)

_SWITCHES = {"true": True, "false": False}


def bad_option(name: str, value: str, reason: str) -> ConfigurationError:
    """Make the error for an invalid option."""
    return ConfigurationError(
        f"option {name}: {value!r} {reason}", "correct the option, or leave it out", code=BAD_OPTION
    )


class SparkOptions:
    """The options by name; upper and lower case are the same.

    Args:
        given: as Spark hands them over.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str, default: str = "") -> str:
        """Read an option as text, without spaces around it."""
        return self._given.get(name.lower(), default).strip()

    def needed(self, name: str, example: str) -> str:
        """Read an option that must be given.

        Raises:
            ConfigurationError: it is not.
        """
        value = self.text(name)
        if not value:
            raise ConfigurationError(
                f"option {name} is missing", f'give it, as in .option("{name}", "{example}")', code=BAD_OPTION
            )
        return value

    def switch(self, name: str, default: bool) -> bool:
        """Check whether an option is true.

        Raises:
            ConfigurationError: it is neither true nor false.
        """
        value = self.text(name)
        if not value:
            return default
        if value.lower() not in _SWITCHES:
            raise bad_option(name, value, "is neither true nor false")
        return _SWITCHES[value.lower()]

    def count(self, name: str, default: int) -> int:
        """Read a whole number of at least 1.

        Raises:
            ConfigurationError: it is something else.
        """
        return self._number(name, default, int, 1, "a whole number")

    def seconds(self, name: str, default: float) -> float:
        """Read a number of seconds of at least 0.

        Raises:
            ConfigurationError: it is something else.
        """
        return self._number(name, default, float, 0, "a number of seconds")

    def _number(self, name: str, default: Number, read: Callable[[str], Number], least: int, what: str) -> Number:
        value = self.text(name)
        if not value:
            return default
        with suppress(ValueError):
            number = read(value)
            if least <= number < math.inf:
                return number
        raise bad_option(name, value, f"is not {what} from {least} on")

    def configuration(self) -> Config:
        """Load the configuration of the bus, from option ``config`` or from the environment, which may name a file.

        Raises:
            ConfigurationError: neither names a file, or it can't be used.
        """
        path = self.text("config") or os.environ.get(FILE_VARIABLE, "")
        if not path and not is_in(os.environ):
            raise ConfigurationError(
                "no configuration file is named",
                f'give .option("config", "config.ini"), or set {FILE_VARIABLE}',
                code=BAD_OPTION,
            )
        return load(Path(path) if path else None)

    def refuse_others(self, known: Iterable[str], silent: Iterable[str] = ()) -> None:
        """Let known options pass: a name written wrong would else be without effect.

        Args:
            known: what may be given.
            silent: the same, of which the error says nothing.

        Raises:
            ConfigurationError: another one is given.
        """
        names = sorted(known)
        unknown = self._given.keys() - {name.lower() for name in (*names, *silent)}
        if unknown:
            raise ConfigurationError(
                f"there is no option {min(unknown)}", f"the options are {', '.join(names)}", code=BAD_OPTION
            )
