"""The way of a command to the broker: its address, and who logs in there by which password."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click

from xbus.admin.program import FiniteRange
from xbus.admin.signatures import Described, Given, Taken, option
from xbus.config import load
from xbus.config.reaching import reachable
from xbus.emitter import Emitter, Options
from xbus.errors import ConfigurationError, ConnectionLost, Failed
from xbus.rpc.client import IPC, NOT_LEADING, Client
from xbus.rpc.codec import Value
from xbus.rpc.context import new_context
from xbus.rpc.curve import PASSWORD_VARIABLE, BrokerAddress, first_line, parse_addresses, read_password
from xbus.rpc.zmtp import parse_way

Side: TypeAlias = Literal["front", "back"]

TIMEOUT = option(
    "How long to insist while the bus does not answer, takes nothing or is paused.",
    FiniteRange(0, min_open=True),
    default=Options.retry_seconds,
    show_default=True,
    metavar="SECONDS",
)
"""For commands that send."""

PASSWORD_FILE = option(
    f"A file with the password in its first line. Otherwise the command takes {PASSWORD_VARIABLE}, or asks."
)


def broker_address(socket: Side, url: str | None, config_path: Path | None) -> str:
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


@dataclass(frozen=True, slots=True)
class CommandLogin:
    """The way of a command to the broker.

    Args:
        socket: the socket that it leads to.
        login: the login that the command line names, if any.
        password_file: the file with its password, if one is named.
        url: the address that the command line names, if any; it wins.
        path: otherwise this configuration file has the address.
    """

    socket: Side
    login: str | None
    password_file: Path | None
    url: str | None
    path: Path | None

    @property
    def address(self) -> str:
        """The address of the broker.

        Raises:
            ConfigurationError: nothing names one.
        """
        return broker_address(self.socket, self.url, self.path)

    def login_and_password(self) -> tuple[str, str]:
        """Give the login and its password; ask for what neither the command line nor the address says.

        Raises:
            ConfigurationError: a file can't be used, or nobody is there to be asked.
        """
        broker = parse_addresses(self.address)[0]
        login = self.login or broker.login or str(click.prompt("Login", err=True))
        return login, _password_of(login, self.password_file or broker.password_file)

    def emitter(self, seconds: float = Options.retry_seconds) -> Emitter:
        """Make the emitter of a command. Its person waits no longer for a pause than for a bus that does not answer."""
        login, password = self.login_and_password()
        return Emitter(self.address, login, password, retry_seconds=seconds, pause_seconds=seconds)


async def call_broker(address: str, seconds: float, verb: str, *args: Value) -> Value:
    """Make one call, over a connection of its own.

    Args:
        address: as of ``broker_address``.
        seconds: to wait for connection and answer where something listens.

    Raises:
        CallError: as the broker answers; or it can't be reached.
        ConfigurationError: the address can't be used.
    """
    deadline = time.monotonic() + seconds
    *others, last = parse_addresses(address)
    for left, place in zip(range(len(others) + 1, 1, -1), others, strict=True):
        try:
            await _check_reachable(place.endpoint, (deadline - time.monotonic()) / left)
        except Failed:
            continue
        try:
            return await _call_one(place, address, deadline - time.monotonic(), verb, args)
        except Failed as error:
            if error.code not in (NOT_LEADING, ConnectionLost.default_code):
                raise
    await _check_reachable(last.endpoint, deadline - time.monotonic() if others else seconds)
    return await _call_one(last, address, deadline - time.monotonic(), verb, args)


async def _call_one(place: BrokerAddress, name: str, seconds: float, verb: str, args: Sequence[Value]) -> Value:
    context = new_context()
    try:
        client = Client(context, name=name)
        try:
            client.connect_to(place)
            return await client.call(verb, *args, timeout=seconds)
        finally:
            client.close()
    finally:
        context.destroy(linger=0)


async def _check_reachable(endpoint: str, seconds: float) -> None:
    """Fail where nothing listens: a call would wait for a broker until its time-out."""
    try:
        if endpoint.startswith(IPC):
            connecting = asyncio.open_unix_connection(endpoint.removeprefix(IPC))
        else:
            _, place = parse_way(endpoint)
            connecting = asyncio.open_connection(place.host, place.port)
    except ValueError:
        return  # the client knows other kinds of addresses, and tells what is wrong with one
    try:
        async with asyncio.timeout(seconds):
            _, connection = await connecting
    except (OSError, UnicodeError) as error:
        cause = str(error) or f"no connection within {seconds:g} seconds"
        raise Failed(f"{endpoint} can't be reached: {cause}") from error
    connection.close()
    with suppress(OSError):
        await connection.wait_closed()


def way_to(socket: Side, whose: str) -> Described:
    """Describe ``--login``, ``--password-file`` and the option of the address, for a :class:`CommandLogin`.

    Args:
        whose: such as "The emitter's login".
    """
    url = {
        "front": option("The front's address; by default that of the configuration file.", metavar="TEXT"),
        "back": option("The back's address; by default that of the configuration file.", None, "--back", metavar="URL"),
    }[socket]
    told = f"{whose}. Otherwise the command takes that of the address, or asks."
    taken = {
        "login": (option(told, envvar="XBUS_LOGIN", show_envvar=True, metavar="NAME"), str),
        "password_file": (PASSWORD_FILE, Path),
        "url": (url, str),
    }

    def value(name: str, kind: Any, given: Given) -> CommandLogin:
        return CommandLogin(socket, given["login"], given["password_file"], given["url"], given["config_path"])

    return Taken(
        lambda name, kind: [param for each, (how, of) in taken.items() for param in how.params(each, of)], value
    )


def _password_of(login: str, file: Path | None) -> str:
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


@dataclass(frozen=True, slots=True)
class NewPassword:
    """The source of the password that somebody is to have.

    Args:
        from_stdin: whether standard input has it.
        file: the file that has it; otherwise the command asks for it twice.
    """

    from_stdin: bool
    file: Path | None

    @property
    def is_named(self) -> bool:
        """True if the command line names a source."""
        return self.from_stdin or self.file is not None

    def of(self, login: str) -> str:
        """Give the password.

        Raises:
            ConfigurationError: the source can't be read, or has no password.
            click.UsageError: both sources are given.
        """
        if self.from_stdin and self.file is not None:
            raise click.UsageError("--stdin and --file exclude each other")
        if self.file is not None:
            return read_password(self.file)
        if self.from_stdin:
            return first_line(sys.stdin.readline(), "standard input")
        asked: str = click.prompt(f"New password of {login}", hide_input=True, confirmation_prompt=True, err=True)
        return asked


def _sources(name: str, kind: Any) -> Sequence[click.Parameter]:
    return [
        *option("Take the first line of standard input.", None, "--stdin").params("from_stdin", bool),
        *option("Take the first line of a file.").params("file", Path),
    ]


NEW_PASSWORD: Described = Taken(_sources, lambda name, kind, given: NewPassword(given["from_stdin"], given["file"]))
