"""Takes over the configuration of an xbus.broker 0.2.0: read it, say what it is here, plan the import, carry it out."""

from xbus.broker.journal.legacy.entries import Remark
from xbus.broker.journal.legacy.plan import ImportPlan, plan_import
from xbus.broker.journal.legacy.present import read_present
from xbus.broker.journal.legacy.reading import read_legacy
from xbus.broker.journal.legacy.translation import translate
from xbus.broker.journal.legacy.writing import carry_out

__all__ = ["ImportPlan", "Remark", "carry_out", "plan_import", "read_legacy", "read_present", "translate"]
