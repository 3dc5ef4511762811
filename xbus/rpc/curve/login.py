"""Completes a login from the address of the broker and from the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

from xbus.errors import ConfigurationError
from xbus.rpc.curve.address import BrokerAddress, parse_address, shown

PASSWORD_VARIABLE = "XBUS_PASSWORD"  # noqa: S105 - the name of the variable


def complete_login(
    address: str, login: str, password: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Give login and password for a broker.

    Args:
        address: names what the program leaves out, see :mod:`xbus.rpc.curve.address`.
        login: as the program gives it; empty for that of the address.
        password: as the program gives it; empty for that in the address's ``password_file``, or in ``XBUS_PASSWORD``.
        environment: has that variable.

    Raises:
        ConfigurationError: ``login_missing``, ``password_missing``, or as ``parse_address`` says.
    """
    if login and password:
        return login, password
    broker = parse_address(address, environment)
    login = login or broker.login
    if not login:
        raise ConfigurationError(
            f"nothing says the login for {shown(address)}", "write xbus://login@host:port", code="login_missing"
        )
    password = password or _password_of(broker, environment)
    if not password:
        raise ConfigurationError(
            f"nothing says the password of {login}",
            f"name a file in the address, password_file=FILE, or set {PASSWORD_VARIABLE}",
            code="password_missing",
        )
    return login, password


def _password_of(broker: BrokerAddress, environment: Mapping[str, str]) -> str:
    file = broker.password_file
    return environment.get(PASSWORD_VARIABLE, "") if file is None else read_password(file)


def read_password(file: Path) -> str:
    """Read the first line of a file.

    Raises:
        ConfigurationError: the file can't be read or its first line is empty.
    """
    try:
        return first_line(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ConfigurationError(f"password file {file} can't be read ({reason})", "name a readable file") from error


def first_line(text: str, source: str) -> str:
    """Cut the first line of a text, without its end.

    Raises:
        ConfigurationError: it is empty.
    """
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise ConfigurationError(f"{source} has no password in its first line", "write the password there")
    return password
