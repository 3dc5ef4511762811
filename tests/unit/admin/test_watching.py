"""Lists that are shown again and again; the terminal is a text."""

import io

import click
import pytest
from click.testing import CliRunner

from xbus.admin.cli import main
from xbus.admin.progress import CLEAR_BELOW, ENTER, HOME, LEAVE, WATCH_SECONDS, show_again
from xbus.errors import JournalUnavailable, Refused


class Screen(io.StringIO):
    """A terminal whose person presses Ctrl-C after some times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times
        self.pauses: list[float] = []

    def isatty(self) -> bool:
        return True

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt

    @property
    def frames(self) -> list[str]:
        """What stood on the screen, one time after the other."""
        shown = self.getvalue().removeprefix(ENTER).removesuffix(LEAVE)
        return [frame.removesuffix(CLEAR_BELOW).replace("\x1b[K", "") for frame in shown.split(HOME)[1:]]


def test_each_time_takes_the_place_of_the_last_one() -> None:
    screen, told = Screen(3), iter(["one", "two\nlines", "three"])
    show_again(lambda: click.echo(next(told)), screen, screen.pause)
    assert screen.frames == ["one\n", "two\nlines\n", "three\n"]
    assert screen.pauses == [WATCH_SECONDS] * 3
    assert screen.getvalue().startswith(ENTER)
    assert screen.getvalue().endswith(LEAVE)


def test_lines_without_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    screen = Screen(1)
    show_again(lambda: click.echo("\n".join(map(str, range(10)))), screen, screen.pause)
    assert screen.frames == ["0\n1\n2\n3\n... 6 more lines\n"]


def test_while_the_database_is_away_it_says_so_and_goes_on() -> None:
    screen, times = Screen(2), iter([True, False])

    def show() -> None:
        if next(times):
            raise JournalUnavailable("the database is away", "see that it runs")
        click.echo("back")

    show_again(show, screen, screen.pause)
    assert screen.frames == ["xbus: the database is away: see that it runs [journal_unavailable]\n", "back\n"]


def test_what_no_later_time_helps_ends_it_and_leaves_the_screen() -> None:
    screen = Screen(2)

    def show() -> None:
        raise Refused("there is no such role", "see xbus recipient list")

    with pytest.raises(Refused):
        show_again(show, screen, screen.pause)
    assert screen.getvalue() == ENTER + LEAVE


@pytest.mark.parametrize("group", ["recipient", "envelope", "parked", "failure", "type"])
def test_only_a_terminal_is_watched(group: str) -> None:
    done = CliRunner().invoke(main, [group, "list", "--watch"], prog_name="xbus")
    assert (done.exit_code, "--watch is for people at a terminal" in done.stderr) == (2, True)
