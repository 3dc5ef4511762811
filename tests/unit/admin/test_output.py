"""JSON for programs is safe on a terminal, too."""

import json

from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.output import one_json


@given(st.dictionaries(st.text(), st.text()))
def test_json_has_nothing_that_a_terminal_obeys(value: dict[str, str]) -> None:
    written = one_json(value)
    assert written.isprintable()
    assert json.loads(written) == value


def test_letters_stay_as_they_are() -> None:
    assert one_json({"name": "Ærøskøbing 東京"}) == '{"name": "Ærøskøbing 東京"}'
    assert one_json({"name": "a\u202eb\x9b31m"}) == '{"name": "a\\u202eb\\u009b31m"}'
