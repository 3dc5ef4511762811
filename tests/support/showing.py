"""What an operator sees of an envelope, as ``xbus envelope show`` reads it."""

import asyncio
from uuid import UUID

from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.role_progress import RoleProgress
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, show_envelope

LOOK_SECONDS = 0.05


def shown(url: str, envelope_id: str) -> EnvelopeDetail:
    """All about an envelope."""
    with reading(url) as connection:
        detail = show_envelope(connection, UUID(envelope_id))
    assert detail is not None, f"there is no envelope {envelope_id}"
    return detail


def progress(url: str, envelope_id: str) -> dict[str, RoleProgress]:
    """What became of an envelope, by role."""
    return {role.role or "": role for role in shown(url, envelope_id).summary.roles}


async def become(
    url: str, envelope_id: str, timeout: float = DEADLINE_SECONDS, **states: str
) -> dict[str, RoleProgress]:
    """Wait until the envelope is in these states, by role, and give all that is known of them."""

    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        # In a thread: the test's clients, which are on this loop, must go on answering.
        found = await asyncio.to_thread(progress, url, envelope_id)
        if {name: role.state for name, role in found.items() if name in states} == states:
            return found
        assert loop.time() < deadline, f"{states} within {timeout} s: did not happen; it is {found}"
        await asyncio.sleep(LOOK_SECONDS)
