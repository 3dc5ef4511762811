"""Pauses, as values: roles, services, event types and emitters for which nothing new begins."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

from xbus.broker.journal.writes.write import Write

PAUSED = "paused"
"""The code of what waits for the end of a pause, and of what is refused until then."""

FOR_EVER = datetime.max.replace(tzinfo=UTC)


class PauseKind(StrEnum):
    """The kinds of what can be paused."""

    ROLE = "role"
    """One recipient gets nothing new."""
    SERVICE = "service"
    """No recipient of its roles gets anything new."""
    TYPE = "type"
    """No event of the type is begun."""
    EMITTER = "emitter"
    """It begins no envelope."""
    BOT = "bot"
    """None of its runs begins, and its slots count as missed."""

    @property
    def told(self) -> str:
        """The kind in a sentence."""
        return "event type" if self is PauseKind.TYPE else self.value


@dataclass(frozen=True, slots=True)
class PauseEntry:
    """A pause.

    Args:
        subject_id: the id of the paused row, in the table of its kind.
        name: its login or name.
        paused_by: the person who paused it.
        until: when it ends by itself; None for when somebody resumes it.
    """

    kind: PauseKind
    subject_id: int
    name: str
    reason: str
    paused_by: str
    since: datetime
    until: datetime | None

    @property
    def told(self) -> str:
        """The pause in a sentence, with its reason and its end."""
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%SZ}"
        return f'{self.kind.told} "{self.name}" is paused{until} by {self.paused_by}: {self.reason}'

    @property
    def resume_command(self) -> str:
        """The command that ends the pause."""
        return f"xbus resume {self.kind.value} {shlex.quote(self.name)} --reason …"

    def is_over(self, now: datetime) -> bool:
        """Check whether it has ended by itself."""
        return self.until is not None and self.until <= now


Pauses: TypeAlias = Mapping[tuple[PauseKind, int], PauseEntry]
"""Pauses by kind and id."""


def longest(pauses: Iterable[PauseEntry | None]) -> PauseEntry | None:
    """Choose the pause that ends last; None where there is none."""
    found = [pause for pause in pauses if pause is not None]
    return max(found, key=lambda pause: pause.until or FOR_EVER, default=None)


def pause_of_role(pauses: Pauses, role_id: int, service_id: int, emits: int | None = None) -> PauseEntry | None:
    """Give the pause of a role or of its service, the one that ends last; None where neither is paused.

    Args:
        emits: the event type as which the bus emits what comes to the role: while that is paused, so is the role.
    """
    of_type = None if emits is None else pauses.get((PauseKind.TYPE, emits))
    return longest([pauses.get((PauseKind.ROLE, role_id)), pauses.get((PauseKind.SERVICE, service_id)), of_type])


@dataclass(frozen=True, slots=True)
class EndPauses(Write[None]):
    """End all pauses whose time is over at ``now``."""

    now: datetime
