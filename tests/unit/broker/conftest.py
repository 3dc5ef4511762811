"""What the broker's unit tests share."""

import pytest

from tests.support.deadline import set_deadlines
from tests.support.waiting import DEADLINE_SECONDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    set_deadlines(items, "tests/unit/broker/", DEADLINE_SECONDS)
