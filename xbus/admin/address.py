"""The way of a command to the broker: its address, and who logs in there by which password."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from xbus.admin.program import FiniteRange
from xbus.config import load
from xbus.config.reaching import reachable
from xbus.emitter import Emitter, Options
from xbus.errors import ConfigurationError
from xbus.rpc.curve import PASSWORD_VARIABLE, first_line, parse_address, read_password

timeout_option = click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=Options.retry_seconds,
    show_default=True,
    metavar="SECONDS",
    help="How long to insist while the bus does not answer, takes nothing or is paused.",
)
"""For commands that send."""

back_option = click.option(
    "--back", "back_url", metavar="URL", help="The back's address; by default that of the configuration file."
)
"""For programs that serve."""


def command_emitter(address: str, login: str, password: str, seconds: float = Options.retry_seconds) -> Emitter:
    """Make the emitter of a command. Its person waits no longer for a pause than for a bus that does not answer."""
    return Emitter(address, login, password, retry_seconds=seconds, pause_seconds=seconds)


def broker_address(socket: Literal["front", "back"], url: str | None, config_path: Path | None) -> str:
    """Find the address of the broker for a call.

    Args:
        socket: one of its two sockets.
        url: the address that the user gave, if any; it wins.
        config_path: otherwise the broker's own configuration file names it.

    Raises:
        ConfigurationError: neither of them names an address.
    """
    if url is not None:
        return url
    zmq = load(config_path).zmq
    address = zmq.frontsocket if socket == "front" else zmq.backsocket
    return reachable(address, socket)


Command = TypeVar("Command", bound=Callable[..., Any])


def login_option(whose: str) -> Callable[[Command], Command]:
    """Add ``--login``; the command gets None where nobody gives it.

    Args:
        whose: such as "The emitter's login".
    """
    told = f"{whose}. Otherwise the command takes that of the address, or asks."
    return click.option("--login", envvar="XBUS_LOGIN", show_envvar=True, metavar="NAME", help=told)


password_file_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"A file with the password in its first line. Otherwise the command takes {PASSWORD_VARIABLE}, or asks.",
)


def login_and_password(login: str | None, file: Path | None, address: str) -> tuple[str, str]:
    """Give the login for a broker and its password; ask for what nothing says.

    Args:
        login: as the person gave it.
        file: with the password, as the person named it; otherwise the address may name one.
        address: see :mod:`xbus.rpc.curve.address`.

    Raises:
        ConfigurationError: a file can't be used, or nobody is there to be asked.
    """
    broker = parse_address(address)
    login = login or broker.login or str(click.prompt("Login", err=True))
    return login, password_of(login, file or broker.password_file)


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


def new_password_options(command: Command) -> Command:
    """Add ``--stdin`` and ``--file``; the command gets ``from_stdin`` and ``file`` for :func:`new_password`."""
    by_file = click.option(
        "--file", type=click.Path(path_type=Path), metavar="FILE", help="Take the first line of a file."
    )
    by_stdin = click.option("--stdin", "from_stdin", is_flag=True, help="Take the first line of standard input.")
    return by_stdin(by_file(command))


def new_password(login: str, from_stdin: bool, file: Path | None) -> str:
    """Give the password that somebody is to have: from standard input or the file, otherwise ask for it twice.

    Raises:
        ConfigurationError: the source can't be read, or has no password.
        click.UsageError: both sources are given.
    """
    if from_stdin and file is not None:
        raise click.UsageError("--stdin and --file exclude each other")
    if file is not None:
        return read_password(file)
    if from_stdin:
        return first_line(sys.stdin.readline(), "standard input")
    asked: str = click.prompt(f"New password of {login}", hide_input=True, confirmation_prompt=True, err=True)
    return asked
