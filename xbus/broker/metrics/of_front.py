"""The families of the front: what emitters send."""

from collections.abc import Iterator

from xbus.broker.front.envelopes import EmitterIntake, TypeIntake
from xbus.broker.front.front import Front
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.metrics.families import Family, counter, gauge, one


def intake_families(front: Front, catalog: Catalog) -> Iterator[Family]:
    """Show what emitters have sent since this process began."""
    # Those that have sent nothing are shown, too: Prometheus sees a rise only from a number that was there.
    by_emitter = {emitter.login: EmitterIntake() for emitter in catalog.emitters.values()}
    by_emitter |= {_login(emitter_id, catalog): counts for emitter_id, counts in front.intake.by_emitter.items()}
    by_type = {name: TypeIntake() for name in catalog.event_types}
    by_type |= {name or "": counts for name, counts in front.intake.by_type.items()}
    emitters = [({"emitter": login}, counts) for login, counts in by_emitter.items()]
    types = [({"event_type": name}, counts) for name, counts in by_type.items()]
    yield counter(
        "xbus_received_envelopes",
        "Envelopes sealed for emitters",
        [(labels, each.envelopes) for labels, each in emitters],
    )
    yield counter(
        "xbus_received_bytes",
        "Bytes of the items of these envelopes",
        [(labels, each.data_bytes) for labels, each in emitters],
    )
    yield counter(
        "xbus_received_events", "Events of these envelopes", [(labels, each.events) for labels, each in types]
    )
    yield counter("xbus_received_items", "Items of these envelopes", [(labels, each.items) for labels, each in types])
    yield gauge("xbus_open_envelopes", "Envelopes that emitters are sending", one(front.open_envelopes))


def _login(emitter_id: int | None, catalog: Catalog) -> str:
    """Give the login of an emitter; one that was removed keeps a name of its own."""
    if emitter_id is None:
        return ""
    emitter = catalog.emitters.get(emitter_id)
    return f"removed #{emitter_id}" if emitter is None else emitter.login
