"""Takes over the configuration of an xbus.broker 0.2.0: read it, say what it is here, plan the import, carry it out.

``reading`` takes the rows out of the old database, ``translation`` and ``nodes`` say what they mean here, ``fitting``
leaves out what does not fit, ``plan`` compares, and ``writing`` applies. It never writes to the old database, and never
removes anything here. The command ``xbus import-legacy`` alone imports it.

Face: the names below.
"""

from xbus.broker.journal.legacy_import.entries import Remark
from xbus.broker.journal.legacy_import.plan import ImportPlan, plan_import, read_present
from xbus.broker.journal.legacy_import.reading import read_legacy
from xbus.broker.journal.legacy_import.translation import translate
from xbus.broker.journal.legacy_import.writing import carry_out

__all__ = ["ImportPlan", "Remark", "carry_out", "plan_import", "read_legacy", "read_present", "translate"]
