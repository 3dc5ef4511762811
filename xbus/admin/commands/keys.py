"""``xbus keys``: makes key pairs, and says who may come by which of them."""

from pathlib import Path

import click

from xbus.admin.arguments import OF_KIND
from xbus.admin.objects import of_keys
from xbus.admin.output import Output, name_column, rows_of
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, shown
from xbus.broker.journal.configuration import allow_key, list_keys, revoke_key
from xbus.broker.journal.log.sessions import LoginKind
from xbus.rpc.curve import KEY_LENGTH, is_public_key, new_pair, read_pair, write_pair

FILE = argument(metavar="[FILE]")


class PublicKey(click.ParamType[str]):
    """A public key, or the name of a key file that has one."""

    name = "key"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if is_public_key(text):
            return text
        if not Path(text).is_file():
            self.fail(f"{text!r} is neither a key of {KEY_LENGTH} characters nor a key file", param, ctx)
        return read_pair(Path(text)).public


KEY = PublicKey()


@click.group(cls=CommandGroup)
def keys() -> None:
    """Make keys for encrypted connections, and say who may log in by which of them."""


@command(keys)
def new(bus: CommandBus, file: Path | None = FILE) -> None:
    """Make a key pair, and print its public key.

    FILE is new, and only you can read it. Without FILE the command makes the key file of the broker, [curve] key_file.
    """
    pair = new_pair()
    write_pair(file or bus.config.curve.key_file, pair)
    click.echo(pair.public)


@command(keys)
def show(bus: CommandBus, file: Path | None = FILE) -> None:
    """Print the public key of a key file: FILE, or the broker's."""
    click.echo(read_pair(file or bus.config.curve.key_file).public)


@command(keys)
def allow(
    bus: CommandBus, kind: LoginKind = argument(), login: str = argument(OF_KIND), key: str = argument(KEY)
) -> None:
    """Let the programs with KEY log in as an emitter or a role, with its password, over encrypted connections.

    KEY is a public key, or a key file. The broker knows it within 2 seconds.
    """
    with bus.writing() as connection:
        allow_key(connection, kind, login, key, bus.now())
    click.echo(f"{kind} {login} may log in by the key {key}.")


@command(keys)
def revoke(bus: CommandBus, key: str = argument(KEY)) -> None:
    """Let nobody log in by KEY any more: a public key, or a key file.

    Within 2 seconds the broker ends the connections that have the key, and the sessions of all logins that had it.
    """
    with bus.writing() as connection:
        revoked = revoke_key(connection, key, bus.now())
    for each in revoked:
        left = {0: "no key", 1: "1 key"}.get(len(each.keys), f"{len(each.keys)} keys")
        click.echo(f"{each.kind} {each.login} has lost the key, and has {left} left.")


@command(keys)
def list_(bus: CommandBus, output: Output = shown("key of a login")) -> None:
    """Show by which keys the emitters and roles may log in."""
    with bus.reading() as connection:
        found = [(each.kind, each.login, key) for each in list_keys(connection) for key in each.keys]
    rows = rows_of(("KIND", name_column("LOGIN"), "KEY"), found)
    output.listing(found, lambda each: of_keys(*each), rows, "No login has a key.")
