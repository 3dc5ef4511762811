"""The handshake: the broker's questions to a recipient before it registers it; other shapes of answers are refused."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.errors import CallError, Refused
from xbus.ids import proof_of
from xbus.rpc.codec import Value
from xbus.rpc.frames import UNKNOWN_METHOD
from xbus.rpc.owed_calls import Callee

REQUIRED_TEXTS = ("name", "host", "start_date", "local_time")
REQUIRED_NUMBERS = ("version", "api_version")

NONSENSE = "recipient_nonsense"
"""The code of answers that the recipient API doesn't know."""

MOST_BYTES = 64 * 1024
"""Bytes, as JSON, up to which the journal keeps a recipient's answers. Honest ones take some hundred."""

MOST_LEVELS = 32
"""The most levels of nested lists and maps. msgpack has a limit too, for those who ask later."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """The answers of a recipient that registers; JSON can represent its metadata and features.

    Args:
        abilities: what of it the broker acts upon.
        kind: ``worker`` or ``consumer``; None where it does not tell, as one written for 0.2.0.
        metadata: what it answered to ``get_metadata``.
        features: what it answered to ``has_clearing`` and ``has_immediate_reply``, by the names ``clearing`` and
            ``immediate_reply``.
    """

    abilities: Abilities
    kind: str | None
    metadata: Mapping[str, Value]
    features: Mapping[str, Sequence[Value]]

    def check_kind(self, role: RoleEntry) -> None:
        """Let a recipient pass that can serve the role: called as the other kind, it would answer and do nothing.

        Raises:
            Refused: a worker registers for a consumer's role, or the other way round (``wrong_kind``).
        """
        wanted = "worker" if role.worker else "consumer"
        if self.kind not in (None, wanted):
            raise Refused(
                f'the program is a {self.kind}, and the role "{role.login}" is of a {wanted} service,'
                f' "{role.shown_service}"',
                f"give the program the login of a {self.kind} role, or run a {wanted} with this login",
                code="wrong_kind",
            )


async def introduce(client: Callee, of_token: bytes | None, seconds: float) -> Handshake:
    """Ask a recipient who it is and what it can do.

    Args:
        client: calls it.
        of_token: the hash of its token, by which it knows us; None where it does not ask.
        seconds: how long all of it may take.

    Raises:
        Refused: recipient_unreachable, recipient_failed or recipient_nonsense.
    """
    try:
        async with asyncio.timeout(seconds):
            if of_token is not None:
                await _prove(client, of_token)
            answer = await client.call("get_metadata")
            clearing = await client.call("has_clearing")
            immediate_reply = await client.call("has_immediate_reply")
    except TimeoutError:
        raise Refused(
            f"the recipient did not introduce itself within {seconds:g} seconds",
            "see that it listens at the address that it registers, and that the broker can reach it"
            if client.connection is None
            else "see that it answers the calls of its channel",
            code="recipient_unreachable",
        ) from None
    except CallError as error:
        if error.code == NONSENSE:
            raise
        raise Refused(
            f"the recipient could not introduce itself: {error.cause}",
            "implement get_metadata, has_clearing and has_immediate_reply"
            if error.code == UNKNOWN_METHOD
            else error.next_step or "see the recipient's log",
            code="recipient_failed",
        ) from error
    metadata = _checked_metadata(answer)
    features = {"clearing": _clearing(clearing), "immediate_reply": _immediate_reply(immediate_reply)}
    abilities = Abilities.of_metadata(metadata, _reply_types(features["immediate_reply"]))
    return Handshake(abilities, _kind(metadata), metadata, features)


async def _prove(client: Callee, of_token: bytes) -> None:
    """Show a recipient that we are the broker at which it logged in. One of before does not ask for that."""
    try:
        challenge = await client.call("xbus.challenge")
    except Refused as refusal:
        if refusal.code != UNKNOWN_METHOD:
            raise
        return
    if not isinstance(challenge, bytes):
        raise _nonsense("xbus.challenge", "bytes")
    await client.call("xbus.prove", proof_of(of_token, challenge))


def _checked_metadata(metadata: Value) -> dict[str, Value]:
    if not isinstance(metadata, dict):
        raise _nonsense("get_metadata", "a map")
    for key in REQUIRED_TEXTS:
        if not isinstance(metadata.get(key), str):
            raise _nonsense("get_metadata", f"a text as {key}")
    for key in REQUIRED_NUMBERS:
        if isinstance(metadata.get(key), bool) or not isinstance(metadata.get(key), int | float):
            raise _nonsense("get_metadata", f"a number as {key}")
    if not _can_be_kept(metadata):
        raise _nonsense("get_metadata", f"what JSON can hold in {MOST_BYTES} bytes and {MOST_LEVELS} levels")
    # JSON holds no keys but texts.
    return cast("dict[str, Value]", metadata)


def _kind(metadata: Mapping[str, Value]) -> str | None:
    match metadata.get("xbus"):
        case {"kind": "worker" | "consumer" as kind}:
            return str(kind)
        case {"kind": _}:
            raise _nonsense("get_metadata", '"worker" or "consumer" as the kind under xbus')
    return None


def _clearing(answer: Value) -> list[Value]:
    match answer:
        case [False, *details]:
            return _without_feature(details)
        case [True, str(url)] if url and _can_be_kept(url):
            return [True, url]
    raise _nonsense("has_clearing", "(False, None) or (True, address of the clearing database)")


def _immediate_reply(answer: Value) -> list[Value]:
    match answer:
        case [False, *details]:
            return _without_feature(details)
        case [True, list(types)] if all(isinstance(name, str) for name in types) and _can_be_kept(types):
            return [True, types]
    raise _nonsense("has_immediate_reply", "(False, None) or (True, list of event type names)")


def _reply_types(feature: Sequence[Value]) -> list[str]:
    match feature:
        case [True, list(types)]:
            return [name for name in types if isinstance(name, str)]
    return []


def _without_feature(details: Sequence[Value]) -> list[Value]:
    """Give the details of a feature that a recipient lacks, or none if they can't be kept; they mean nothing."""
    return [False, details[0] if details and _can_be_kept(details[0]) else None]


def _can_be_kept(value: Value) -> bool:
    """Check whether JSON keeps a value unchanged: msgpack has more, such as bytes, and keys of any type."""
    try:
        if _levels(value) > MOST_LEVELS:
            return False
        text = json.dumps(value, allow_nan=False)
        return len(text) <= MOST_BYTES and json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        return False


def _levels(value: Value) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_levels, value), default=0) if isinstance(value, list) else 0


def _nonsense(verb: str, wanted: str) -> Refused:
    return Refused(f"the recipient's {verb} does not answer {wanted}", f"correct its {verb}", code=NONSENSE)
