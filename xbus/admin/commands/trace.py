"""``xbus trace``."""

from pathlib import Path

import click

from xbus.admin.chains import draw, lines
from xbus.admin.objects import of_chain_link
from xbus.admin.output import Output
from xbus.admin.program import EnvelopeId, config_option, database_url, output_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.chains import read_ancestors, read_descendants
from xbus.broker.journal.operations.envelopes.details import envelope_unknown
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope, shorten


@click.command()
@config_option
@click.argument("envelope_id", type=EnvelopeId(), metavar="ENVELOPE")
@click.option("--up", "direction", flag_value="up", help="Only what it was made of.")
@click.option("--down", "direction", flag_value="down", help="Only what was made of it.")
@click.option("--svg", is_flag=True, help="Write a picture in SVG.")
@output_option("envelope")
def trace(config_path: Path | None, envelope_id: str, direction: str | None, svg: bool, output: Output) -> None:
    """Show what was made of an envelope, and what it was made of.

    The way leads through nodes that emit, replays, and envelopes that were sent again.
    """
    with reading(database_url(config_path)) as connection:
        wanted = resolve_envelope(connection, envelope_id)
        ancestors = read_ancestors(connection, wanted)
        if not ancestors:
            raise envelope_unknown(wanted)
        links = ancestors if direction != "down" else ancestors[-1:]
        if direction != "up":
            links = [*links, *read_descendants(connection, wanted)]
        ids = {} if output.is_wide else shorten(connection, [link.envelope_id for link in links])
    if svg:
        click.echo(draw(links, wanted))
    elif output.as_json:
        output.objects(of_chain_link(link) for link in links)
    else:
        click.echo("\n".join(lines(links, wanted, ids, output)))
