"""Says in sentences what a repair concerns and what it has done; pure."""

from collections.abc import Iterator, Mapping

from xbus.admin.output import counted
from xbus.admin.repair.corrections import CorrectionTarget, Reach
from xbus.admin.repair.moves import Resumed
from xbus.broker.journal.operations.parked import Parked


def parts_of(parked: Parked) -> str:
    """Name the parked parts of an envelope for a role."""
    whole = [f"envelope {parked.envelope_id}"] if parked.delivery is not None else []
    items = [counted(len(parked.items)) + " of it that were parked alone"] if parked.items else []
    if items and not whole:
        items = [f"{counted(len(parked.items))} of envelope {parked.envelope_id}"]
    return " and ".join(whole + items)


def resumed_sentences(resumed: Resumed) -> Iterator[str]:
    """Report the resumed parts."""
    if resumed.whole:
        yield f"Resumed envelope {resumed.envelope_id} for {resumed.role}."
    if resumed.items_as is not None:
        items = counted(resumed.items)
        yield f"Resumed {items} of envelope {resumed.envelope_id} for {resumed.role}, as envelope {resumed.items_as}."


def reach_sentences(target: CorrectionTarget, reach: Reach) -> Iterator[str]:
    """Say for whom a correction holds, and for whom not."""
    if target.role is None:
        yield from _reached(reach)
    if reach.workers:
        yield f"It goes through the workers again: {', '.join(reach.workers)}."


def _reached(reach: Reach) -> Iterator[str]:
    if reach.only_roles is not None:
        yield f"The envelope is for {', '.join(reach.only_roles)} only."
    if reach.lacking:
        yield f"Roles that lack it: {_named(reach.lacking)}."
    for envelope_id, lacking in reach.repeats.items():
        yield f"Roles that lack it as envelope {envelope_id}: {_named(lacking)}."
    if not (reach.lacking or reach.repeats):
        yield "No role lacks it now."
    if reach.having:
        yield f"Roles that have it keep it as they got it: {', '.join(reach.having)}."


def corrected_sentence(target: CorrectionTarget, *, done: bool) -> str:
    """Say which item is corrected for whom, before or after it is done."""
    what = f"item {target.index} of event {target.event.number}"
    whom = target.role.role if target.role is not None else "all roles that lack it, and for those that come later"
    return f"{'Corrected' if done else 'Corrects'} {what} for {whom}."


def _named(lacking: Mapping[str, str]) -> str:
    return ", ".join(f"{login} ({state})" for login, state in sorted(lacking.items()))
