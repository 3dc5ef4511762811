"""Commands whose arguments and options their functions and actions describe."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from xbus.admin.arguments import MOMENT, REASON
from xbus.admin.output import Output
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, option, shown, typed
from xbus.states import TrackingState


def ran(made: click.Command, *words: str) -> str:
    result = CliRunner().invoke(made, words)
    assert result.exit_code == 0, result.output
    return result.output.rstrip("\n")


@command()
def tell(
    name: str = argument(),
    others: Sequence[int] = argument(click.IntRange(1)),
    state: TrackingState | None = option("The state."),
    file: Path | None = option("A file."),
    kind: Literal["a", "b"] = option("The kind.", default="a"),
    since: datetime | None = option("The begin.", MOMENT),
    words: Sequence[str] = option("Words.", None, "--word"),
    all_: bool = option("All."),
    output: Output = shown("thing"),
) -> None:
    """Tell what came."""
    click.echo(repr((name, others, state, file, kind, since, words, all_, output.as_json)))


def test_the_annotation_says_the_kind() -> None:
    words = ["x", "1", "2", "--state", "on_hold", "--file", "f", "--kind", "b", "--word", "v", "--word", "w", "--all"]
    told = ("x", (1, 2), TrackingState.ON_HOLD, Path("f"), "b", None, ("v", "w"), True, True)
    assert ran(tell, *words, "--json") == repr(told)


def test_nothing_but_a_name_is_needed() -> None:
    assert ran(tell, "x") == repr(("x", (), None, None, "a", None, (), False, False))


@pytest.mark.parametrize(
    "words", [[], ["x", "0"], ["x", "--state", "gone"], ["x", "--kind", "c"], ["x", "--since", "?"]]
)
def test_other_values_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(tell, words).exit_code == 2


def test_help_tells_each_option_once() -> None:
    told = ran(tell, "--help")
    assert "Usage: tell [OPTIONS] NAME [OTHERS]..." in told
    assert "--file FILE" in told
    assert "--since WHEN" in told
    assert "one object for each thing" in told


class Paint(BusAction):
    """Paint the thing NAME."""

    path = "paint"
    title = "Paint"
    words = "thing paint"
    question = "Paint {name}?"
    has_dry_run = True

    name: str = argument()
    colours: Sequence[str] = option("The colours.", None, "--colour", title="Colours")
    layers: int | None = option("How many.", click.IntRange(1))
    reason: str = REASON
    secret: str = typed("Secret")

    def check(self) -> None:
        if self.layers and not self.colours:
            raise ValueError("layers need a colour")

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield f"{self.name} gets {', '.join(self.colours)}."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        yield f"{self.name} is painted: {self.reason}."


PAINT = command_of(Paint)


def test_a_command_shows_the_plan_and_asks() -> None:
    words = ("wall", "--colour", "red", "--colour", "blue", "--reason", "old")
    assert ran(PAINT, *words, "--yes") == "wall gets red, blue.\nwall is painted: old."
    assert ran(PAINT, *words, "--dry-run") == "wall gets red, blue."
    refused = CliRunner().invoke(PAINT, words, input="n\n")
    assert (refused.exit_code, "is painted" in refused.output) == (1, False)


@pytest.mark.parametrize("words", [["--layers", "2"], ["--reason", " "]])
def test_fields_that_do_not_go_together_are_refused(words: list[str]) -> None:
    given: list[Any] = ["wall", "--reason", "old", *words, "--yes"]
    assert CliRunner().invoke(PAINT, given).exit_code == 2


def test_an_action_writes_the_words_of_its_command() -> None:
    act = Paint(name="wall", colours=["red", "blue"], reason="", secret="x")
    assert act.command() == ["xbus", "thing", "paint", "wall", "--colour", "red", "--colour", "blue"]
