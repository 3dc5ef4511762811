"""Bundles: several whole small envelopes that come in one call, and are carried out one after the other.

``whole`` reads them, ``steps`` carries one out, ``jobs`` all of them, and ``abilities`` says which bundles a recipient
takes. Only the verbs of the recipient use it.
"""

from xbus.recipient.bundles.abilities import prepared_at_once, takes_bundles
from xbus.recipient.bundles.jobs import carry_out_all, commit_all, prepare_all
from xbus.recipient.bundles.steps import BundleAnswer, BundleStep
from xbus.recipient.bundles.whole import WholeEnvelope

__all__ = [
    "BundleAnswer",
    "BundleStep",
    "WholeEnvelope",
    "carry_out_all",
    "commit_all",
    "prepare_all",
    "prepared_at_once",
    "takes_bundles",
]
