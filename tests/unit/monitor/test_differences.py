"""The difference between two texts."""

from xbus.monitor.features.entries import differences


def test_lines_that_look_like_the_head_of_a_difference_are_shown() -> None:
    found = differences("-- old\nstays\n", "stays\n++ new\n")
    assert [(each.sign, each.text) for each in found] == [("-", "-- old"), (" ", "stays"), ("+", "++ new")]


def test_equal_texts_have_none() -> None:
    assert differences("a\n", "a\n") == []
