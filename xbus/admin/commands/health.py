"""``xbus health``."""

import asyncio
from datetime import datetime

import click

from xbus.admin.address import Side, broker_address, call_broker
from xbus.admin.output import CAUSE, Column, Output, Row, name_column, one_json
from xbus.admin.signatures import CommandBus, command, option, shown
from xbus.ending import NOT_NOW, REFUSED
from xbus.errors import CallError, ProtocolError, Refused
from xbus.rpc.messages import HealthPause, HealthProblem, HealthReport
from xbus.rpc.shapes import AnswerReader

ANSWER_SECONDS = 5.0
"""Seconds to wait for an answer where something listens."""

UNREACHABLE = "unreachable"


_REPORT = AnswerReader("xbus.health", HealthReport)


@command()
def health(
    bus: CommandBus,
    url: str | None = option("Ask at this address only, the front's or the back's.", metavar="URL"),
    output: Output = shown("process of the broker"),
) -> None:
    """Ask the broker how it is.

    \b
    Exit codes:
      0  it is healthy
      1  it has a problem; the command shows the next step
      3  it can't be reached
    """
    sides: tuple[Side, ...] = ("front", "back")
    addresses = {"broker": url} if url is not None else {side: broker_address(side, None, bus.path) for side in sides}
    answers = dict(zip(addresses, asyncio.run(_ask(list(addresses.values()))), strict=True))
    # One process that runs both parts reports the same twice.
    reports = [*{each["name"]: each for each in answers.values() if not isinstance(each, CallError)}.values()]
    silent = {name: _unreachable(name, each) for name, each in answers.items() if isinstance(each, CallError)}
    for report in reports:
        output.detail(_plain(report), _told(report, output))
    for name, problem in silent.items():
        if output.as_json:
            facts = {"process": name, "healthy": False, "since": None, "problems": [problem], "pauses": []}
            click.echo(one_json(facts))
        click.echo(f"xbus: {problem['cause']}: {problem['next_step']} [{problem['code']}]", err=True)
    click.get_current_context().exit(_exit_code(reports, is_silent=bool(silent)))


def _plain(report: HealthReport) -> dict[str, object]:
    """Make an object of a report, by the names that all commands use."""
    problems = [{**problem, "about": problem.get("about")} for problem in report["problems"]]
    return {
        "process": report["name"],
        "healthy": report["healthy"],
        "since": report["since"],
        "problems": problems,
        "pauses": [_plain_pause(pause) for pause in report.get("pauses", [])],
    }


def _plain_pause(pause: HealthPause) -> dict[str, object]:
    told = {name: value for name, value in pause.items() if name != "until"}
    return {**told, "until_at": pause["until"]}


def _exit_code(reports: list[HealthReport], is_silent: bool) -> int:
    if not all(report["healthy"] for report in reports):
        return REFUSED
    return NOT_NOW if is_silent else 0


async def _ask(addresses: list[str]) -> list[HealthReport | CallError]:
    return await asyncio.gather(*map(_ask_one, addresses))


async def _ask_one(address: str) -> HealthReport | CallError:
    try:
        answer = await call_broker(address, ANSWER_SECONDS, "xbus.health")
    except CallError as error:
        return error
    try:
        return _REPORT.read(answer)
    except Refused as error:
        raise ProtocolError(
            f"the program at {address} is no broker of this version", "see that the address is right"
        ) from error


def _unreachable(name: str, error: CallError) -> HealthProblem:
    taken = {"front": "nothing is taken from emitters", "back": "nothing is delivered"}
    cause = f"the {name} can't be reached, so {taken.get(name, 'it may be down')} ({error.cause})"
    next_step = (
        "see whether it runs, and what its log says; start_xbusbroker starts it, and it goes on where it stopped"
    )
    return {"code": UNREACHABLE, "about": name, "cause": cause, "since": None, "next_step": next_step}


def _told(report: HealthReport, output: Output) -> list[str]:
    since = _moment(report["since"])
    paused = list(output.block("PAUSED", [_pause_row(each, output) for each in report.get("pauses", [])]))
    if report["healthy"]:
        return [f"The {report['name']} has been healthy since {since}.", *paused]
    rows = [
        {
            name_column("CODE"): problem["code"],
            name_column("ABOUT"): problem.get("about") or None,
            "SINCE": output.when(None if problem["since"] is None else datetime.fromisoformat(problem["since"])),
            CAUSE: problem["cause"],
            Column("NEXT STEP", narrows=20, breaks=True): problem["next_step"] or None,
        }
        for problem in report["problems"]
    ]
    return [f"The {report['name']} has not been healthy since {since}.", *output.block("PROBLEMS", rows), *paused]


def _pause_row(pause: HealthPause, output: Output) -> Row:
    return {
        "KIND": pause["kind"],
        name_column("NAME"): pause["name"],
        "SINCE": output.when(datetime.fromisoformat(pause["since"])),
        "UNTIL": _moment(pause["until"]),
        "BY": pause["paused_by"],
        Column("REASON", narrows=20, breaks=True): pause["reason"],
    }


def _moment(text: str | None) -> str | None:
    """Write a moment to the second, as other commands show it."""
    return None if text is None else f"{text[:10]} {text[11:19]}Z"
