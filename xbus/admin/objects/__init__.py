"""The objects that commands write as JSON: one name for one thing, as ``docs/json.md`` lists them; pure.

An id ends with ``_id``, a moment with ``_at`` or is called ``since`` where a state began then, a list that has a number
of the same name beside it ends with ``_list``.
"""

from xbus.admin.objects.base import JsonObject
from xbus.admin.objects.bots import of_bot, of_run
from xbus.admin.objects.envelopes import of_chain_link, of_envelope, of_envelope_detail
from xbus.admin.objects.failures import (
    of_failure,
    of_failure_detail,
    of_failure_group,
    of_group_detail,
    of_parked,
    of_parked_part,
)
from xbus.admin.objects.findings import of_finding
from xbus.admin.objects.others import (
    of_api_token,
    of_audit_row,
    of_clearing_item,
    of_descriptor,
    of_keys,
    of_outbox,
    of_sessions,
    of_type,
    of_verification,
)
from xbus.admin.objects.readers import of_move, of_range, of_reader
from xbus.admin.objects.roles import of_pause, of_role, progress_of

__all__ = [
    "JsonObject",
    "of_api_token",
    "of_audit_row",
    "of_bot",
    "of_chain_link",
    "of_clearing_item",
    "of_descriptor",
    "of_envelope",
    "of_envelope_detail",
    "of_failure",
    "of_failure_detail",
    "of_failure_group",
    "of_finding",
    "of_group_detail",
    "of_keys",
    "of_move",
    "of_outbox",
    "of_parked",
    "of_parked_part",
    "of_pause",
    "of_range",
    "of_reader",
    "of_role",
    "of_run",
    "of_sessions",
    "of_type",
    "of_verification",
    "progress_of",
]
