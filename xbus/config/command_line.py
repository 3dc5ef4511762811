"""The option by which each program and command gets its configuration file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from xbus.config.reading import FILE_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])


def file_option(parameter: str, text: str) -> Callable[[Command], Command]:
    """Make the option.

    Args:
        parameter: the name under which the command gets the path; None for no file.
        text: for ``--help``.
    """
    return click.option(
        "-c",
        "--config",
        parameter,
        type=click.Path(path_type=Path),
        envvar=FILE_VARIABLE,
        show_envvar=True,
        metavar="FILE",
        help=text,
    )
