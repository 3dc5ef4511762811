"""What the documentation shows is accepted."""

from pathlib import Path

from xbus.admin import bus_file
from xbus.broker.journal.configuration import BusSpec, Stored, make_plan

PAGE = Path(__file__).parents[3] / "docs" / "bus-file.md"


def test_the_file_in_the_documentation_can_be_applied() -> None:
    example = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    found = bus_file.read(example.encode())
    plan = make_plan(Stored(1, BusSpec(), BusSpec()), found.bus)
    assert (found.problems, plan.problems) == ((), ())
    assert len(plan.changes) == 9
