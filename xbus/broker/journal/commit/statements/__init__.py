"""The statements of each write of the broker. Changes by administrators are in ``configuration`` and ``operations``."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias, cast

import sqlalchemy as sa

from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements import (
    bots,
    bulk,
    closing,
    emission,
    pauses,
    presence,
    progress,
    repeating,
    replies,
    sessions,
)
from xbus.broker.journal.commit.statements.closing import read_taken
from xbus.broker.journal.commit.statements.stored import lasting_appends
from xbus.broker.journal.log.contents import list_blocks
from xbus.broker.journal.log.segments import gather
from xbus.broker.journal.writes import Sealed, SealedEnvelope, SealedGroup, SealReceipt
from xbus.broker.journal.writes import bots as run_writes
from xbus.broker.journal.writes import bulk as bulk_writes

News: TypeAlias = tuple[list[writes.Append], list[Sealed]]
"""The items that writes have stored, and the envelopes that they have sealed; see ``tally``."""

Tally: TypeAlias = tuple[int, int, list[writes.Append], list[Sealed]]

Handler = Callable[[sa.Connection, Any], Sequence[object] | None]

_HANDLERS: dict[type, Handler] = {
    writes.StartSession: sessions.start_sessions,
    writes.RenewSessions: sessions.renew_sessions,
    writes.NoteTokens: sessions.note_tokens,
    writes.EndSession: sessions.end_sessions,
    writes.StorePassword: sessions.store_passwords,
    # A recipient that is replaced by a newer one is struck off first. A registration is answered only when it is
    # durable, so none is struck off in the group that brings it.
    writes.Unregister: sessions.unregister,
    writes.Register: sessions.register,
    writes.Introduce: sessions.introduce,
    writes.StartEnvelope: emission.start_envelopes,
    writes.StartEvent: emission.start_events,
    writes.Append: emission.insert_segments,
    bulk_writes.AppendOutput: bulk.append,
    writes.EndEvent: emission.end_events,
    writes.Cancel: closing.cancel,
    writes.CallOffAsks: replies.call_off,
    writes.AskReply: replies.ask,
    writes.MoveReply: replies.move,
    writes.ProgressUpdate: progress.progress,
    writes.NotePresence: presence.note,
    writes.EndPauses: pauses.end,
    writes.FollowOrder: progress.follow_order,
    bulk_writes.BeginAttempt: bulk.begin,
    bulk_writes.RenewAttempt: bulk.renew,
    bulk_writes.EndAttempt: bulk.end,
    run_writes.LoseRuns: bots.lose,
    run_writes.FireSlots: bots.fire,
    run_writes.RenewRuns: bots.renew,
    run_writes.EndRun: bots.end,
    run_writes.ClaimRun: bots.claim,
    writes.ListBlock: list_blocks,
    # Last, so that the one row of head, which every sealing transaction updates, is held as briefly as can be.
    writes.Repeat: repeating.repeat,
    writes.Seal: closing.seal,
    writes.PutEnvelope: closing.seal,
    writes.PutGroup: closing.seal,
}
"""In the order in which a group is carried out. Kinds with one handler keep the order in which they came."""

_IN_ORDER = tuple(dict.fromkeys(_HANDLERS.values()))

_TURNS = {kind: _IN_ORDER.index(handler) for kind, handler in _HANDLERS.items()}

_PAST_SQLALCHEMY = {writes.PutGroup, writes.StartEnvelope, writes.StartEvent, writes.EndEvent}


def goes_past_sqlalchemy(group: Sequence[writes.Write[object]]) -> bool:
    """Check whether all statements of a group go straight to the driver, as those of ordinary writes do."""
    for write in group:
        if type(write) in _PAST_SQLALCHEMY:
            continue
        if isinstance(write, writes.ProgressUpdate):
            if write.deliveries or write.failures or write.decided or write.repeated:
                return False
        elif isinstance(write, writes.Seal):
            # What an envelope holds is read unless it is known, and so is why one that goes alone was cancelled.
            if not write.is_one_append or write.content is None or len(group) == 1:
                return False
        elif not isinstance(write, writes.Append) or write.stored is not None:
            return False
    return True


def tally(group: Sequence[writes.Write[object]], answers: Sequence[object]) -> Tally:
    """Say what writes have stored and sealed.

    Returns:
        The bytes of items that they add: that they store, or that a bulk worker stored before. How many writes these
        are, where each envelope of a ``PutGroup`` is one. The items stored in the database of envelopes that come in
        parts, in their order: items in an object store are large, and would take the place of all others. And the
        sealed envelopes, in position order. Envelopes that came in parts are groups, too, where their content is at
        hand.
    """
    total, count = 0, len(group)
    appends: list[writes.Append] = []
    sealed: list[Sealed] = []
    ended: list[SealedGroup] = []
    for write, answer in zip(group, answers, strict=True):
        if type(answer) is SealedGroup:
            total += sum(map(len, answer.group.data))
            count += len(answer.hashes) + len(answer.taken) - 1
            if answer.hashes:
                sealed.append(answer)
            continue
        if (bytes_of := _BYTES_OF.get(type(write))) is not None:
            total += bytes_of(write, answer)
        if type(answer) is not SealReceipt:
            if type(write) is writes.Append and write.stored is None:
                appends.append(write)
        elif type(write) is writes.Seal and write.content is not None:
            ended.append(SealedGroup(answer.position, answer.position, write.content, (answer.hash,)))
        else:
            content = write if type(write) is writes.PutEnvelope else None
            sealed.append(SealedEnvelope(answer, content, type(write) is writes.Repeat))
    if ended:
        sealed += _runs(ended)
    if len(sealed) > 1:
        sealed.sort(key=lambda each: each.first)
    return total, count, appends, sealed


def _runs(ended: list[SealedGroup]) -> Iterator[SealedGroup]:
    """Join envelopes that follow each other, and ended in one turn of the loop, to groups."""
    ended.sort(key=lambda each: each.first)
    places = itertools.count()
    for _, run in groupby(ended, lambda each: (each.first - next(places), each.group.at)):
        yield SealedGroup.joined([*run])


_BYTES_OF: dict[type, Callable[[Any, object], int]] = {
    writes.Append: lambda write, _: write.size,
    writes.PutEnvelope: lambda write, answer: write.size if type(answer) is SealReceipt else 0,
    bulk_writes.AppendOutput: lambda write, _: write.page.data_bytes,
    bulk_writes.EndAttempt: lambda write, is_kept: write.data_bytes or 0 if is_kept else 0,
}


def carry_out(connection: sa.Connection, group: Sequence[writes.Write[object]], max_segment_bytes: int) -> list[object]:
    """Write a group of calls in the caller's transaction.

    The group is carried out kind by kind, not call by call: an envelope's calls come in the order of the kinds anyway,
    and one statement then serves many calls.

    Args:
        connection: in a transaction that the caller commits or rolls back.
        group: in the order in which the calls came.
        max_segment_bytes: gathered segments are not made larger than this.

    Returns:
        An answer for each call, in the same order: a ``SealReceipt`` for a seal, a put or a repeat, a ``SealedGroup``
        for a group, whether it took effect for what becomes of an attempt, else None.

    Raises:
        JournalError: one of the calls can't be carried out; nothing of the group may be committed.
    """
    answers: list[Any] = [None] * len(group)
    places: dict[int, list[int]] = {}
    for place, write in enumerate(group):
        places.setdefault(_TURNS[type(write)], []).append(place)
    for turn in sorted(places):
        handler, own = _IN_ORDER[turn], places[turn]
        calls: list[Any] = [group[place] for place in own]
        if handler is emission.insert_segments:
            appends = lasting_appends(connection, cast(list[writes.Append], calls))
            calls = gather(appends, max_segment_bytes)
        for place, answer in zip(own, handler(connection, calls) or (), strict=False):
            answers[place] = answer
    return answers


def carry_out_free(
    connection: sa.Connection, group: Sequence[writes.Write[object]], max_segment_bytes: int
) -> list[object]:
    """Write a group of calls as ``carry_out`` does, without the whole envelopes whose ids are taken.

    Returns:
        As ``carry_out``; for a ``PutEnvelope`` that was left out its error.
    """
    groups = [write for write in group if isinstance(write, writes.PutGroup)]
    puts = [write for write in group if isinstance(write, writes.PutEnvelope)]
    taken = read_taken(connection, groups, puts)
    answers: list[Any] = [None] * len(group)
    going: dict[int, writes.Write[object]] = {}
    for place, write in enumerate(group):
        if isinstance(write, writes.PutGroup):
            places = taken.in_group(write)
            kept = write.at_places([each for each in range(len(write)) if each not in places])
            answers[place] = SealedGroup(0, -1, kept, (), places)
            if not len(kept):
                continue
            write = kept
        elif isinstance(write, writes.PutEnvelope) and (error := taken.error_of(write)) is not None:
            answers[place] = error
            continue
        going[place] = write
    done = carry_out(connection, [*going.values()], max_segment_bytes) if going else ()
    for place, answer in zip(going, done, strict=True):
        left_out = answers[place]
        answers[place] = answer if left_out is None else cast(SealedGroup, answer)._replace(taken=left_out.taken)
    return answers
