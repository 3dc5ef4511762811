"""Takes over the configuration of an xbus.broker 0.2.0: read it, say what it is here, plan the import, carry it out."""

from xbus.broker.journal.legacy_import.entries import Remark
from xbus.broker.journal.legacy_import.plan import ImportPlan, plan_import
from xbus.broker.journal.legacy_import.present import read_present
from xbus.broker.journal.legacy_import.reading import read_legacy
from xbus.broker.journal.legacy_import.translation import translate
from xbus.broker.journal.legacy_import.writing import carry_out

__all__ = ["ImportPlan", "Remark", "carry_out", "plan_import", "read_legacy", "read_present", "translate"]
