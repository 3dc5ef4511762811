"""The audit: who did what to the bus, when and from where, in a chain of hashes.

A program notes an act in the transaction of the act itself, so that neither exists without the other. That takes no
lock. The broker, and each ``xbus audit`` command, hangs the new rows into the chain a moment later, one writer at a
time. Every package of the journal above ``database`` imports it, and so do front, back and commands.

Face: the names below, ``chain``, ``cutting``, ``reading`` and ``verifying``.
"""

from xbus.broker.journal.audit.acts import Act, RepairDecision, act_here, acting_as, acting_person, done_by, person
from xbus.broker.journal.audit.noting import note_acts

__all__ = ["Act", "RepairDecision", "act_here", "acting_as", "acting_person", "done_by", "note_acts", "person"]
