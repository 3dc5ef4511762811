"""``xbus envelope cancel``."""

from pathlib import Path
from uuid import UUID

import click

from xbus.admin.output import counted, moment
from xbus.admin.program import Careful, EnvelopeId, config_option, confirm, database_url, reason_option
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.database.connection import Connection, reading, writing
from xbus.broker.journal.operations.envelopes.cancelling import cancel_open, check_open
from xbus.broker.journal.operations.envelopes.details import MOST_EVENTS, show_envelope
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.clock import SystemClock


@click.command(cls=Careful)
@config_option
@click.argument("envelope", type=EnvelopeId())
@reason_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def cancel(config_path: Path | None, envelope: str, reason: str, yes: bool) -> None:
    """Cancel an envelope that its emitter has not sealed: nobody gets it.

    Its emitter gets the reason at its next call. A sealed envelope can't be cancelled. The broker may run or not.
    """
    url = database_url(config_path)
    with reading(url) as connection:
        envelope_id = resolve_envelope(connection, envelope)
        check_open(connection, envelope_id)
        click.echo(_told(connection, envelope_id))
    if not yes:
        confirm("Cancel it for good?")
    decision = decision_of(SystemClock(), reason)
    act = decision.act("cancelled", f"envelope {envelope_id}", before="open")
    move = "envelope cancelled"
    # The new version has a running broker look: its front keeps open envelopes in memory.
    with (
        writing(url) as connection,
        new_version(connection, move, f"envelope {envelope_id}: {decision.told}", decision.at, acts=[act]),
    ):
        cancel_open(connection, envelope_id, decision.at, decision.told)
    click.echo(f"Cancelled envelope {envelope_id}.")


def _told(connection: Connection, envelope_id: UUID) -> str:
    detail = show_envelope(connection, envelope_id)
    assert detail is not None, "its state was read in this transaction"
    summary, types = detail.summary, list(dict.fromkeys(event.type for event in detail.event_list))
    events = counted(len(detail.event_list), "event") + (" or more" if len(detail.event_list) == MOST_EVENTS else "")
    return (
        f"Envelope {envelope_id} of {summary.emitter} is open since {moment(summary.opened_at)}, with {events}"
        f"{' of ' if types else ''}{', '.join(types)}."
    )
