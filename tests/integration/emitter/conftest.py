"""A front to send to."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.emitter.front_double import FrontDouble
from xbus.rpc.context import new_context


@pytest.fixture
async def front() -> AsyncIterator[FrontDouble]:
    """A front double, listening."""
    context = new_context()
    double = FrontDouble(context).start()
    yield double
    double.stop()
    context.destroy(linger=0)
