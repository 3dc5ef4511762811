"""``xbus why`` and ``xbus trace``: why something is as it is, and what was made of what."""

from collections.abc import Iterator
from contextlib import closing

import click

from xbus.admin.arguments import BOT, EMITTER, READER_OR_ROLE
from xbus.admin.chains import draw, lines
from xbus.admin.commands.envelope import ENVELOPE
from xbus.admin.objects import of_chain_link, of_finding
from xbus.admin.output import Output, facts, moment
from xbus.admin.program import EnvelopeId
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.admin.why.findings import Finding, Proof
from xbus.admin.why.inquiry import Inquiry, RunningBroker
from xbus.broker.journal.database.connection import ConnectionPool
from xbus.broker.journal.operations.envelopes.chains import read_ancestors, read_descendants
from xbus.broker.journal.operations.envelopes.details import envelope_unknown, resolve_envelope, shorten
from xbus.broker.journal.operations.failures import FailureSummary
from xbus.broker.journal.operations.why.envelopes import AskedPart

INDENT = "  "


@command()
def why(
    bus: CommandBus,
    id_: str | None = argument(EnvelopeId(), metavar="[ID]"),
    emitter: str | None = option("The emitter, or that of --key.", EMITTER),
    key: str | None = option("The envelope to which --emitter gave this key."),
    role: str | None = option("The role, reader or subscription; of an envelope, its delivery there.", READER_OR_ROLE),
    bot: str | None = option("The bot.", BOT),
    event: int | None = option("This event of the envelope, from 1.", click.IntRange(1), metavar="NUMBER"),
    item: int | None = option("This item of the event, from 0.", click.IntRange(0), metavar="INDEX"),
    output: Output = shown("answer"),
) -> None:
    """Say why an envelope, an event, a role, a reader, a bot or an emitter is as it is.

    ID is that of an envelope or an event. The answer is one sentence with its code, its proof, and the command that
    helps; where roles differ, each has its own, the most urgent first.
    """
    part = AskedPart(role, event or (None if item is None else 1), item)
    # The reads of an answer share one engine: it compiles each statement once.
    with closing(ConnectionPool(bus.url)) as journal:
        inquiry = Inquiry(journal.read, RunningBroker(bus.path), bus.clock)
        findings = _ask(inquiry, id_, emitter, key, bot, part)
    if output.as_json:
        output.objects(map(of_finding, findings))
        return
    click.echo("\n\n".join("\n".join(_told(finding, output)) for finding in findings))


def _ask(
    inquiry: Inquiry, id_: str | None, emitter: str | None, key: str | None, bot: str | None, part: AskedPart
) -> list[Finding]:
    match (id_, emitter, key, bot):
        case (str(), None, None, None):
            return inquiry.by_id(id_, part)
        case (None, str(), str(), None):
            return inquiry.by_key(emitter, key, part)
        case (None, None, None, str()) if part == AskedPart():
            return inquiry.bot(bot)
        case (None, str(), None, None) if part == AskedPart():
            return inquiry.emitter(emitter)
        case (None, None, None, None) if part.role is not None and part == AskedPart(part.role):
            return inquiry.role(part.role)
    raise click.UsageError("give an ID, --emitter with --key, --role alone, --emitter alone, or --bot alone")


def _told(finding: Finding, output: Output) -> Iterator[str]:
    yield output.paragraph(f"{finding.cause}. [{finding.code}]")
    known = {**_proof(finding.proof), "next step": finding.next_step or None}
    yield from (f"{INDENT}{line}" for line in facts(known))


def _proof(proof: Proof) -> dict[str, object]:
    return {
        "envelope": proof.envelope_id,
        "other envelope": proof.other_id,
        "state": proof.state,
        "since": moment(proof.since),
        "until": moment(proof.until_at),
        "last seen": moment(proof.seen_at),
        "attempts": proof.attempts,
        "envelopes": proof.envelopes,
        "items": proof.items,
        "service": proof.service,
        "call": proof.verb,
        "at": proof.place,
        "failed call": proof.failure and _failed(proof.failure),
    }


def _failed(failure: FailureSummary) -> str:
    where = "" if failure.node is None else f" at node {failure.node}"
    return f"{failure.id}: {failure.verb}{where}, {moment(failure.at)}: {failure.code}: {failure.message}"


@command()
def trace(
    bus: CommandBus,
    envelope_id: str = ENVELOPE,
    up: bool = option("Only what it was made of."),
    down: bool = option("Only what was made of it."),
    svg: bool = option("Write a picture in SVG.", is_local=True),
    output: Output = shown("envelope"),
) -> None:
    """Show what was made of an envelope, and what it was made of.

    The way leads through nodes that emit, replays, and envelopes that were sent again.
    """
    with bus.reading() as connection:
        wanted = resolve_envelope(connection, envelope_id)
        ancestors = read_ancestors(connection, wanted)
        if not ancestors:
            raise envelope_unknown(wanted)
        links = ancestors[-1:] if down else ancestors
        if not up:
            links = [*links, *read_descendants(connection, wanted)]
        ids = {} if output.is_wide else shorten(connection, [link.envelope_id for link in links])
    if svg:
        click.echo(draw(links, wanted))
    elif output.as_json:
        output.objects(of_chain_link(link) for link in links)
    else:
        click.echo("\n".join(lines(links, wanted, ids, output)))
