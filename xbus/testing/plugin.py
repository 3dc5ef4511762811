"""The plugin for pytest: ``pytest_plugins = ["xbus.testing.plugin"]`` in the topmost ``conftest.py``."""

from collections.abc import Iterator

import pytest

from xbus.testing import Bus


@pytest.fixture
def bus() -> Iterator[Bus]:
    """An empty bus, which ends with the test."""
    with Bus() as bus:
        yield bus
