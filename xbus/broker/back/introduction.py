"""What the broker asks a recipient before it registers it; answers of any other shape are refused."""

import asyncio
from typing import Any

from xbus.broker.back.recipient import Abilities
from xbus.errors import CallError, Refused
from xbus.rpc.client import Client

REQUIRED_TEXTS = ("name", "host", "start_date", "local_time")
REQUIRED_NUMBERS = ("version", "api_version")


async def introduce(client: Client, seconds: float) -> Abilities:
    """Ask a recipient who it is and what it can do.

    Args:
        client: connected to it.
        seconds: how long all of it may take.

    Raises:
        Refused: recipient_unreachable, recipient_failed or recipient_nonsense.
    """
    try:
        async with asyncio.timeout(seconds):
            metadata = await client.call("get_metadata")
            clearing = await client.call("has_clearing")
            immediate_reply = await client.call("has_immediate_reply")
    except TimeoutError:
        raise Refused(
            f"the recipient did not introduce itself within {seconds:g} seconds",
            "see that it listens at the address that it registers, and that the broker can reach it",
            code="recipient_unreachable",
        ) from None
    except CallError as error:
        raise Refused(
            f"the recipient could not introduce itself: {error.cause}",
            "implement get_metadata, has_clearing and has_immediate_reply",
            code="recipient_failed",
        ) from error
    _check_metadata(metadata)
    _check_feature("has_clearing", clearing)
    _check_feature("has_immediate_reply", immediate_reply)
    return Abilities.of_metadata(metadata)


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict):
        raise _nonsense("get_metadata", "a map")
    for key in REQUIRED_TEXTS:
        if not isinstance(metadata.get(key), str):
            raise _nonsense("get_metadata", f"a text as {key}")
    for key in REQUIRED_NUMBERS:
        if isinstance(metadata.get(key), bool) or not isinstance(metadata.get(key), int | float):
            raise _nonsense("get_metadata", f"a number as {key}")


def _check_feature(verb: str, answer: Any) -> None:
    match answer:
        case [bool(), _]:
            return
    raise _nonsense(verb, "whether it has the feature, and its details")


def _nonsense(verb: str, wanted: str) -> Refused:
    return Refused(f"the recipient's {verb} does not answer {wanted}", f"correct its {verb}", code="recipient_nonsense")
