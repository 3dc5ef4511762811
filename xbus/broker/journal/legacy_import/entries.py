"""The entries of an xbus.broker 0.2.0 beside the bus itself, and the remarks on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Owner: TypeAlias = tuple[Literal["emitter", "role", "person"], str]
"""The owner of a password: the kind, and the login."""


@dataclass(frozen=True)
class LegacyPerson:
    """Somebody who operates or administers the bus."""

    login: str
    display_name: str | None
    email: str | None


@dataclass(frozen=True)
class LegacyDescriptor:
    """Describes files, so that their records can be emitted as items."""

    name: str
    content: bytes = field(repr=False)
    mimetype: str | None


@dataclass(frozen=True)
class EmissionProfile:
    """A way in which a person emits files.

    Args:
        person: the login of who may use it; None for nobody.
        descriptor: the name of the input descriptor; None for none.
    """

    name: str
    person: str | None
    descriptor: str | None
    encoding: str


@dataclass(frozen=True)
class Belongings:
    """People and what they emit files with, each by name or login."""

    people: Mapping[str, LegacyPerson] = field(default_factory=dict)
    descriptors: Mapping[str, LegacyDescriptor] = field(default_factory=dict)
    emission_profiles: Mapping[str, EmissionProfile] = field(default_factory=dict)

    def kinds(self) -> Mapping[str, Mapping[str, LegacyPerson | LegacyDescriptor | EmissionProfile]]:
        """Give the entries by the name of their kind; each kind may refer to those before it."""
        return {
            "person": self.people,
            "input_descriptor": self.descriptors,
            "emission_profile": self.emission_profiles,
        }


@dataclass(frozen=True)
class Remark:
    """A note about an entry that was not taken over as it was.

    Args:
        sentence: what, with names, without a final full stop.
        next_step: what to do about it; empty where nothing is to be done.
        is_loss: whether the bus lacks something now that the old one had.
    """

    sentence: str
    next_step: str = ""
    is_loss: bool = False

    def __str__(self) -> str:
        return f"{self.sentence}: {self.next_step}" if self.next_step else self.sentence
