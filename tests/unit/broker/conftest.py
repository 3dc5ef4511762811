"""What the broker's unit tests share."""

from pathlib import Path

import pytest

from tests.support.deadline import set_deadlines
from tests.support.waiting import DEADLINE_SECONDS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    set_deadlines((item for item in items if here in item.path.parents), DEADLINE_SECONDS)
