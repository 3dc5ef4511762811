"""A back for readers."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.reader.reader_double import ReaderDouble
from xbus.rpc.context import new_context


@pytest.fixture
async def back() -> AsyncIterator[ReaderDouble]:
    """A double of the back, listening."""
    context = new_context()
    double = ReaderDouble(context).start()
    yield double
    double.stop()
    context.destroy(linger=0)
