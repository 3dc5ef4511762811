"""``xbus person`` adds people, says what they may do, and makes tokens for their programs."""

from abc import ABC
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import click

from xbus.admin.address import NEW_PASSWORD, NewPassword
from xbus.admin.arguments import PERSON, RIGHT, UNTIL
from xbus.admin.objects import of_person, of_person_token
from xbus.admin.output import Output, counted, moment, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, option, shown
from xbus.broker.journal import people
from xbus.passwords import Passwords, check_new
from xbus.rights import Right, write_rights

NAME = argument(PERSON)


@click.group(cls=CommandGroup)
def person() -> None:
    """Add people, say what they may do, and keep them out.

    \b
    Rights:
      manager     everything but what bots run: the configuration, people, the work of all others
      programmer  say which function or command a bot runs; no other right includes it
      operator    repairs: resume, drop, correct, cancel, pause, track
      uploader    upload files
      clearer     answer the questions of data clearing
      viewer      see everything, and change nothing; everybody has this right
    """


@command(person)
def add(
    bus: CommandBus,
    name: str = NAME,
    rights: Sequence[Right] = argument(RIGHT, metavar="[RIGHT]..."),
    password: NewPassword = NEW_PASSWORD,
    no_password: bool = option("Add somebody who can't log in until a password is set."),
) -> None:
    """Add a person with the given rights; without any the person may view.

    The command asks for the password, unless an option names its source.
    """
    if no_password and password.is_named:
        raise click.UsageError("--no-password excludes --stdin and --file")
    password_hash = None if no_password else _hashed(bus, name, password)
    with bus.writing() as connection:
        added = people.add_person(connection, name, rights, password_hash, bus.now())
    click.echo(f"Person {name} is added: {write_rights(added.rights)}.")


@command(person)
def list_(bus: CommandBus, output: Output = shown("person")) -> None:
    """Show all people, their rights, and when they were last seen."""
    with bus.reading() as connection:
        found = people.list_persons(connection)
        sessions = people.count_sessions_of(connection, output.now)
    rows = [
        {
            name_column("NAME"): each.name,
            "RIGHTS": write_rights(each.rights),
            "SESSIONS": sessions.get(each.id, 0),
            "SEEN": output.when(each.last_seen_at),
            "ADDED": output.when(each.created_at),
            "DISABLED": output.when(each.disabled_at),
        }
        for each in found
    ]
    output.listing(
        found,
        lambda each: of_person(each, sessions.get(each.id, 0)),
        rows,
        "Nobody is there: xbus person add NAME manager",
    )


def check_gift(bus: CommandBus, rights: Collection[Right]) -> None:
    """Let nobody but a programmer make a programmer, or get hold of the login of one.

    Raises:
        Refused: who acts lacks the right (``forbidden``).
    """
    if Right.PROGRAMMER in rights:
        bus.check_right(Right.PROGRAMMER)


class PersonAction(BusAction, ABC):
    """The person whom an action is about."""

    right = Right.MANAGER

    name: str = argument(PERSON, longest=255)

    def preview(self, bus: CommandBus) -> Iterator[str]:
        found = bus.read(lambda connection: people.known_person(connection, self.name))
        yield f"{found.name} has the rights: {write_rights(found.rights)}."


RIGHTS = argument(
    RIGHT,
    title="Rights",
    about="A manager may do all but say what bots run; only a programmer may. Everybody may view.",
    metavar="[RIGHT]...",
)


class SetRights(PersonAction):
    """Give a person these rights, and take all others, at once."""

    path = "people/rights"
    title = "Set the rights"
    words = "person rights"

    rights: Sequence[Right] = argument(RIGHT, required=True, title="Rights", about=RIGHTS.about, metavar="RIGHT...")

    def command(self) -> list[str]:
        return [*super().command(), *([] if self.rights else [Right.VIEWER])]

    def typed(self, bus: CommandBus) -> Mapping[str, str]:
        return {"rights": " ".join(bus.read(lambda connection: people.known_person(connection, self.name)).rights)}

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            check_gift(bus, {*self.rights} - people.known_person(connection, self.name).rights)
            people.set_rights(connection, self.name, self.rights, bus.now())
        yield f"Person {self.name} has the rights: {write_rights(self.rights or [Right.VIEWER])}."


class DisablePerson(PersonAction):
    """Let a person do nothing any more, at once: all sessions end, and all tokens are removed.

    The person stays, as the audit names it.
    """

    path = "people/disable"
    title = "Disable"
    words = "person disable"

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            people.disable_person(connection, self.name, bus.now())
        yield f"Person {self.name} is disabled."


class EnablePerson(PersonAction):
    """Let a disabled person work again, with the password and the rights of before."""

    path = "people/enable"
    title = "Enable"
    words = "person enable"

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            check_gift(bus, people.known_person(connection, self.name).rights)
            people.enable_person(connection, self.name, bus.now())
        yield f"Person {self.name} is enabled."


class EndSessions(PersonAction):
    """End all sessions of a person, who may log in again. Tokens stay."""

    path = "people/log-out"
    title = "Log out everywhere"
    words = "person logout"

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            found = people.known_person(connection, self.name)
            ended = people.end_sessions(connection, found.id, bus.now())
        yield f"{counted(ended, 'session')} of person {self.name} ended."


command_of(SetRights, person)
command_of(DisablePerson, person)
command_of(EnablePerson, person)
command_of(EndSessions, person)


@command(person, "password")
def set_password(bus: CommandBus, name: str = NAME, password: NewPassword = NEW_PASSWORD) -> None:
    """Set the password of a person, and end all sessions.

    The command asks for it, unless an option names its source. Tokens stay.
    """
    password_hash = _hashed(bus, name, password)
    with bus.writing() as connection:
        people.set_password(connection, name, password_hash, bus.now())
    click.echo(f"The password of person {name} is set.")


def _hashed(bus: CommandBus, name: str, source: NewPassword) -> str:
    # A person is asked only for a password that can be kept.
    bus.check()
    password = source.of(name)
    check_new(password)
    return Passwords().hash_password(password)


@person.group(cls=CommandGroup)
def token() -> None:
    """Make tokens by which programs act for a person."""


class AddToken(PersonAction):
    """Make a token for a person, and print it. Nobody can read it again.

    TOKEN is its name, by which you tell it from the person's others.
    """

    path = "people/token/add"
    title = "Make a token"
    words = "person token add"

    token: str = argument(title="Name of the token", about="Tells it from the person's others.", longest=255)
    rights: Sequence[Right] = option(
        "Let it do this, as far as the person may; may be repeated. Without any it may view.",
        RIGHT,
        "--right",
        title="Rights",
    )
    until: datetime | None = option("Let it end then: 90d from now, or a moment.", UNTIL, title="Until", longest=64)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        check_gift(bus, self.rights)
        with bus.writing() as connection:
            whose = people.known_person(connection, self.name)
            made = people.add_token(connection, whose.id, self.token, self.rights, self.until, bus.now())
        end = "" if self.until is None else f" It ends at {moment(self.until)}."
        yield f"The token {self.token} of {self.name} is made. Copy it now, as nobody can read it again.{end}"
        yield made

    def answer(self, done: Sequence[str]) -> Iterable[str]:
        return done[1:]


command_of(AddToken, token)


@command(token, "list")
def list_tokens(bus: CommandBus, name: str | None = argument(PERSON), output: Output = shown("token")) -> None:
    """Show the tokens of a person, or of all people."""
    with bus.reading() as connection:
        whose = people.list_persons(connection) if name is None else [people.known_person(connection, name)]
        found = [(each, token) for each in whose for token in people.list_tokens(connection, each.id)]
    rows = [
        {
            name_column("PERSON"): each.name,
            name_column("TOKEN"): token.name,
            "RIGHTS": write_rights(token.rights),
            "ADDED": output.when(token.created_at),
            "USED": output.when(token.used_at),
            "END IN": output.ahead(token.expires_at),
        }
        for each, token in found
    ]
    output.listing(found, lambda each: of_person_token(*each), rows, "There is no token.")


class RemoveToken(PersonAction):
    """Remove a token: programs that have it are refused at once."""

    path = "people/token/remove"
    title = "Remove the token"
    words = "person token remove"

    token: str = argument(longest=255)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            whose = people.known_person(connection, self.name)
            people.remove_token(connection, whose.id, self.token, bus.now())
        yield f"Token {self.token} of person {self.name} is removed."


command_of(RemoveToken, token)
