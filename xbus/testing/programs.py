"""The programs of a bus in memory: one for each role, with the recipient of a test, or one that only notes."""

import asyncio
import functools
import gc
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.recipient.base import Consumer, Recipient
from xbus.recipient.calls import AuthorThread
from xbus.testing.broker import VirtualBroker
from xbus.testing.desk import SteppingThread
from xbus.testing.endpoint import RecipientEndpoint, VirtualRecipient
from xbus.testing.probe import ProbedCalls, RoleLog

Author: TypeAlias = Recipient | type[Recipient]
"""A recipient as a test hands it in: made already, or its class."""

RESTART_SECONDS = 1.0
"""Seconds until a recipient that has crashed is started again."""


class NotingConsumer(Consumer):
    """Takes everything; its probe notes it."""

    envelopes = 100


class Programs:
    """Starts, stops and finds the recipients of all roles.

    Args:
        clock: tells the time.
        find_broker: gives the broker that runs now, or None.

    Attributes:
        by_address: the programs, as the broker reaches them.
        stopped: the logins of the roles whose programs the test has stopped.
    """

    def __init__(self, clock: Clock, find_broker: Callable[[], VirtualBroker | None]) -> None:
        self._clock = clock
        self._find_broker = find_broker
        self._authors: dict[str, Author] = {}
        self._roles: dict[str, RoleEntry] = {}
        self._logs: dict[str, RoleLog] = {}
        self._by_login: dict[str, VirtualRecipient] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self.by_address: dict[str, VirtualRecipient] = {}
        self.stopped: set[str] = set()

    def serve(self, author: Author, service: str) -> str:
        """Have a recipient provide a service, or one role of it; return the name that it provides."""
        name = service or _names_of(author, self._roles.values())
        if not name:
            services = ", ".join(sorted({role.service for role in self._roles.values()})) or "none yet"
            kind = author if isinstance(author, type) else type(author)
            raise Refused(
                f"no service is called as {kind.__name__} (there are: {services})",
                "describe the graph first, or name the service: bus.serve(Recipient, 'service')",
                code="unknown_service",
            )
        for login in self.logins(name):
            self._authors[login] = author
            if (program := self._by_login.pop(login, None)) is not None:
                program.kill()
        return name

    def know(self, catalog: Catalog) -> None:
        """Take note of the roles of a bus that programs serve."""
        self._roles = {role.login: role for role in catalog.roles.values() if role.emits is None}

    def start_all(self) -> None:
        """Start each program that does not run, in a running loop."""
        for login, role in self._roles.items():
            if login in self._by_login or login in self.stopped or (role.worker and login not in self._authors):
                continue
            program = VirtualRecipient(login, functools.partial(self._endpoint, role))
            self._by_login[login] = self.by_address[program.address] = program
            program.start()
            self._keeping.append(asyncio.ensure_future(program.keep_registered(role.id, self._find_broker)))

    def _endpoint(self, role: RoleEntry) -> RecipientEndpoint:
        author = self._authors.get(role.login, NotingConsumer)
        made = author() if isinstance(author, type) else author

        def is_killed() -> bool:
            return calls.has_crashed

        desk = cast(AuthorThread, SteppingThread(is_killed, lambda: self._crash(role.login)))
        calls = ProbedCalls(made, desk, self.log(role.login), role.login)
        endpoint = RecipientEndpoint(made, calls, desk, self._clock)
        # What on_start raises goes to the loop, and from there to the test.
        endpoint.started.add_done_callback(lambda started: started.result())
        return endpoint

    def _crash(self, login: str) -> None:
        program = self._by_login[login]
        program.kill()
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self._start_again, login, program)

    def _start_again(self, login: str, program: VirtualRecipient) -> None:
        if self._by_login.get(login) is program and login not in self.stopped:
            # What a killed process had open is closed, such as a database that it kept others from writing.
            gc.collect()
            program.start()

    async def stop(self, name: str) -> None:
        """Stop a role's program in order; what comes for it waits."""
        for login in self.logins(name):
            self.stopped.add(login)
            program = self._by_login.pop(login, None)
            if program is not None and program.served is not None:
                await program.stop(self._roles[login].id, self._find_broker())

    def start(self, name: str) -> None:
        """Start again what was stopped."""
        self.stopped -= set(self.logins(name))
        self.start_all()

    async def close(self) -> None:
        """Stop every program, and run the ``on_stop`` of its author."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for program in self._by_login.values():
            if isinstance(program.served, RecipientEndpoint):
                await program.served.end()
            program.kill()

    def logins(self, name: str) -> list[str]:
        """List the logins that a name stands for: one login, or those of a service.

        Raises:
            Refused: neither a role nor a service has this name (``unknown_service``).
        """
        if name in self._roles:
            return [name]
        found = sorted(login for login, role in self._roles.items() if role.service == name)
        if not found:
            known = ", ".join(sorted({role.service for role in self._roles.values()}))
            raise Refused(f"no service or role is called {name}", f"there are: {known}", code="unknown_service")
        return found

    def one_login(self, name: str) -> str:
        """Give the only login that a name stands for.

        Raises:
            Refused: it stands for several (``role_wanted``), or for none.
        """
        found = self.logins(name)
        if len(found) > 1:
            raise Refused(f"the service {name} has several roles", f"name one: {', '.join(found)}", code="role_wanted")
        return found[0]

    def log(self, login: str) -> RoleLog:
        """Give what happened at a role."""
        return self._logs.setdefault(login, RoleLog())

    def missing_services(self) -> set[str]:
        """Give the worker services for which the test serves no recipient."""
        return self._services_without(self._authors)

    def stopped_services(self) -> set[str]:
        """Give the worker services whose programs are all stopped."""
        running = [login for login in self._authors if login not in self.stopped]
        return self._services_without(running) - self.missing_services()

    def _services_without(self, logins: Iterable[str]) -> set[str]:
        workers = {role.service for role in self._roles.values() if role.worker}
        return workers - {self._roles[login].service for login in logins if login in self._roles}

    def busy(self) -> list[str]:
        """List the logins of the recipients that have an envelope open."""
        return [
            login
            for login, program in self._by_login.items()
            if program.served is not None and not program.api.deliveries.is_idle
        ]


def _names_of(author: Author, roles: Iterable[RoleEntry]) -> str:
    """Find the service that a recipient is named after, by its ``name`` or by the name of its class."""
    kind = author if isinstance(author, type) else type(author)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
    services = {role.service for role in roles}
    return next((name for name in (author.name, kind.__name__, words) if name in services), "")
