"""``xbus keys``: makes key pairs, and says who may come by which of them."""

from pathlib import Path

import click

from xbus.admin.arguments import OF_KIND
from xbus.admin.objects import of_keys
from xbus.admin.output import Output, name_column, rows_of
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal.configuration import allow_key, list_keys, revoke_key
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.sessions import LoginKind
from xbus.clock import SystemClock
from xbus.config import load
from xbus.rpc.curve import KEY_LENGTH, is_public_key, new_pair, read_pair, write_pair

file_argument = click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")


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


@keys.command()
@config_option
@file_argument
def new(config_path: Path | None, file: Path | None) -> None:
    """Make a key pair, and print its public key.

    FILE is new, and only you can read it. Without FILE the command makes the key file of the broker, [curve] key_file.
    """
    pair = new_pair()
    write_pair(file or load(config_path).curve.key_file, pair)
    click.echo(pair.public)


@keys.command()
@config_option
@file_argument
def show(config_path: Path | None, file: Path | None) -> None:
    """Print the public key of a key file: FILE, or the broker's."""
    click.echo(read_pair(file or load(config_path).curve.key_file).public)


@keys.command()
@config_option
@click.argument("kind", type=click.Choice(["emitter", "role"]))
@click.argument("login", type=OF_KIND)
@click.argument("key", type=KEY)
def allow(config_path: Path | None, kind: LoginKind, login: str, key: str) -> None:
    """Let the programs with KEY log in as an emitter or a role, with its password, over encrypted connections.

    KEY is a public key, or a key file. The broker knows it within 2 seconds.
    """
    with writing(database_url(config_path)) as connection:
        allow_key(connection, kind, login, key, SystemClock().now())
    click.echo(f"{kind} {login} may log in by the key {key}.")


@keys.command()
@config_option
@click.argument("key", type=KEY)
def revoke(config_path: Path | None, key: str) -> None:
    """Let nobody log in by KEY any more: a public key, or a key file.

    Within 2 seconds the broker ends the connections that have the key, and the sessions of all logins that had it.
    """
    with writing(database_url(config_path)) as connection:
        revoked = revoke_key(connection, key, SystemClock().now())
    for each in revoked:
        left = {0: "no key", 1: "1 key"}.get(len(each.keys), f"{len(each.keys)} keys")
        click.echo(f"{each.kind} {each.login} has lost the key, and has {left} left.")


@keys.command("list")
@config_option
@output_option("key of a login")
def list_(config_path: Path | None, output: Output) -> None:
    """Show by which keys the emitters and roles may log in."""
    with reading(database_url(config_path)) as connection:
        found = [(each.kind, each.login, key) for each in list_keys(connection) for key in each.keys]
    rows = rows_of(("KIND", name_column("LOGIN"), "KEY"), found)
    output.listing((of_keys(*each) for each in found), rows, "No login has a key.")
