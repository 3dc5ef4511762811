"""The options of an emitter."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from xbus.emitter.options import PROBE_SECONDS, OptionKeywords, Options
from xbus.errors import ConfigurationError


def test_the_keywords_are_the_options() -> None:
    assert get_type_hints(OptionKeywords) == {option.name: option.type for option in fields(Options)}


def test_every_option_is_documented() -> None:
    assert all(f"{option.name}:" in (Options.__doc__ or "") for option in fields(Options))


@pytest.mark.parametrize("value", [0, -1])
def test_a_bad_value_is_named(value: int) -> None:
    with pytest.raises(ConfigurationError, match=f"batch_items is {value}"):
        Options(batch_items=value)


def test_nothing_need_be_tried_again() -> None:
    assert Options(retry_seconds=0).probe_seconds == PROBE_SECONDS
    with pytest.raises(ConfigurationError, match="retry_seconds is -1"):
        Options(retry_seconds=-1)
