"""Setting the passwords of emitters and roles."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.broker.journal.configuration import check_login, set_password
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.journal.people import Right
from xbus.monitor.actions.action import Action, TypedSecret, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor


class SetLoginPassword(Action):
    """Set the password of an emitter or a role."""

    path = "configuration/password"
    title = "Set the password"
    right: ClassVar[Right] = Right.MANAGER

    kind: LoginKind
    login: str = Field(max_length=4000)
    password: Annotated[TypedSecret, asked("password", "New password")]
    keep_sessions: Annotated[bool, asked("check", "Keep sessions", "Who is logged in goes on.")] = False

    def command(self) -> Sequence[str]:
        return ["xbus", "password", self.kind, self.login, *(["--keep-sessions"] if self.keep_sessions else [])]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        bus.read(lambda connection: check_login(connection, self.kind, self.login))
        yield f"Set the password of {self.kind} {self.login}."
        yield "Within 2 seconds the broker ends all sessions of the login: its programs must log in with the new one."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        password_hash = bus.passwords.hash_password(self.password.get_secret_value())
        with bus.writing(visitor) as connection:
            set_password(connection, self.kind, self.login, password_hash, bus.now(), keep_sessions=self.keep_sessions)
        yield f"The password of {self.kind} {self.login} is set."
