"""Takes a password for a command in such a way that no screen and no list of processes shows it."""

import os
import sys
from pathlib import Path

import click

from xbus.errors import ConfigurationError

PASSWORD_VARIABLE = "XBUS_PASSWORD"  # noqa: S105 - the name of the variable

password_file_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"A file with the password in its first line. Otherwise the command takes {PASSWORD_VARIABLE}, or asks.",
)


def password_of(login: str, file: Path | None) -> str:
    """Give the password of ``login``: from the file, otherwise from the environment, otherwise ask for it.

    Raises:
        ConfigurationError: the file can't be read, or is empty, or nobody is there to be asked.
    """
    if file is not None:
        return read_password(file)
    if environment := os.environ.get(PASSWORD_VARIABLE):
        return environment
    try:
        asked: str = click.prompt(f"Password of {login}", hide_input=True, err=True)
    except click.Abort as abort:
        if sys.stdin.isatty():
            raise  # a person has interrupted it
        raise ConfigurationError(
            f"nothing says the password of {login}, and nobody can be asked",
            f"set {PASSWORD_VARIABLE}, or give --password-file",
        ) from abort
    return asked


def read_password(file: Path) -> str:
    """Read the first line of ``file``.

    Raises:
        ConfigurationError: the file can't be read or its first line is empty.
    """
    try:
        return first_line(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigurationError(f"password file {file} can't be read ({reason})", "name a readable file") from error


def first_line(text: str, source: str) -> str:
    """Cut the first line of ``text``, without its end.

    Raises:
        ConfigurationError: it is empty.
    """
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise ConfigurationError(f"{source} has no password in its first line", "write the password there")
    return password
