"""``xbus doctor``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from xbus.admin.doctor import PARTS, DoctorFinding, examine
from xbus.admin.output import CAUSE, Column, Output, counted, name_column, rows_of
from xbus.admin.program import config_option, output_option
from xbus.clock import SystemClock
from xbus.config import is_in, load, read
from xbus.ending import REFUSED

HEADS = (name_column("CODE"), name_column("ABOUT"), CAUSE, Column("NEXT STEP", narrows=20, breaks=True))


@click.command()
@config_option
@output_option("finding")
def doctor(config_path: Path | None, output: Output) -> None:
    """Examine the installation, and show for each finding its cure.

    The command looks at the configuration, this machine, the database, its object stores, the bus in it, and the
    running broker. It changes nothing.

    \b
    Exit codes:
      0  there is no problem
      1  there is one; the command shows its cure
    """
    if config_path is None and not is_in(os.environ):
        load(config_path)  # ends here, and says what to name
    found = dict(examine(read(config_path), config_path, SystemClock()))
    findings = [finding for of_part in found.values() for finding in of_part]
    if output.as_json:
        output.objects(_facts(part, finding) for part, of_part in found.items() for finding in of_part)
    else:
        click.echo("\n".join(_told(found, output)))
    click.get_current_context().exit(REFUSED if any(finding.is_problem for finding in findings) else 0)


def _told(found: Mapping[str, Sequence[DoctorFinding]], output: Output) -> list[str]:
    lines = [f"{part:<14} {_outcome(found.get(part))}" for part in PARTS]
    findings = [finding for of_part in found.values() for finding in of_part]
    for title, of_kind in (("PROBLEMS", True), ("NOTES", False)):
        cells = ((each.code, each.about, each.cause, each.next_step) for each in findings if each.is_problem is of_kind)
        lines += output.block(title, rows_of(HEADS, cells))
    return lines


def _outcome(of_part: Sequence[DoctorFinding] | None) -> str:
    if of_part is None:
        return "not looked at, as what it stands on has a problem"
    problems = sum(finding.is_problem for finding in of_part)
    notes = len(of_part) - problems
    said = [counted(number, what) for number, what in ((problems, "problem"), (notes, "note")) if number]
    return ", ".join(said) or "well"


def _facts(part: str, finding: DoctorFinding) -> dict[str, object]:
    return {
        "part": part,
        "code": finding.code,
        "about": finding.about,
        "severity": "problem" if finding.is_problem else "note",
        "cause": finding.cause,
        "next_step": finding.next_step,
    }
