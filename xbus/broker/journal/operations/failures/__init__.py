"""Failures for people, alone and in groups of one fingerprint: people track them, own them, and comment on them."""

from xbus.broker.journal.operations.failures.groups import (
    FailureGroup,
    GroupBounds,
    GroupDetail,
    GroupFilters,
    GroupPage,
    list_groups,
    show_group,
)
from xbus.broker.journal.operations.failures.listing import (
    FailureDetail,
    FailureSummary,
    known_role_id,
    list_failures,
    role_name,
    show_failure,
    unknown_failure,
)
from xbus.broker.journal.operations.failures.moves import (
    Assign,
    Comment,
    FailureMove,
    GroupStep,
    Track,
    move_failures,
    move_group_page,
)
from xbus.broker.journal.operations.failures.past_moves import PastMove

__all__ = [
    "Assign",
    "Comment",
    "FailureDetail",
    "FailureGroup",
    "FailureMove",
    "FailureSummary",
    "GroupBounds",
    "GroupDetail",
    "GroupFilters",
    "GroupPage",
    "GroupStep",
    "PastMove",
    "Track",
    "known_role_id",
    "list_failures",
    "list_groups",
    "move_failures",
    "move_group_page",
    "role_name",
    "show_failure",
    "show_group",
    "unknown_failure",
]
