"""The judge of the torture finds each kind of violation: one that can't fail proves nothing."""

from dataclasses import replace

from tests.torture.checker import SETTLE_SECONDS, Verdict, check, refusal_is_explained
from tests.torture.history import TAKEOVER, Commit, CommittedEvent, History, Received, Routes, Sent, Struck

ROUTES: Routes = {"orders": {"audit": (), "ledger": ("price",)}, "notices": {"audit": ()}}
NOTICE, ORDER = CommittedEvent("notices", "e-1/0", ((0, 3),)), CommittedEvent("orders", "e-1/1", ((0, 2),))
SENT = Sent("e-1", (("notices", 3), ("orders", 2)), sealing=True, sealed=True, envelope_id="A", position=1)
AT_AUDIT, AT_LEDGER = Commit("A", 10, 11, (NOTICE, ORDER)), Commit("A", 10, 11.5, (ORDER,))
RIGHT = History(
    routes=ROUTES,
    ordered=frozenset(),
    sent={"e-1": SENT},
    received={"A": Received(1, SENT.events)},
    commits={"audit": [AT_AUDIT], "ledger": [AT_LEDGER]},
)


def at_audit(*commits: Commit) -> History:
    """All is right, but for what the audit committed."""
    return replace(RIGHT, commits={**RIGHT.commits, "audit": list(commits)})


def at_audit_events(*events: CommittedEvent) -> History:
    return at_audit(replace(AT_AUDIT, events=events))


def kinds(verdict: Verdict) -> list[str]:
    return [violation.kind for violation in verdict.violations]


def test_what_is_right_is_counted_in_items() -> None:
    assert check(RIGHT) == Verdict(acknowledged=5, delivered=5)


def test_what_was_sealed_without_an_acknowledgement_must_arrive_too() -> None:
    unknown = replace(SENT, sealed=False, envelope_id=None, position=None)
    assert check(replace(RIGHT, sent={"e-1": unknown})) == Verdict(acknowledged=0, delivered=5)


def test_nodes_that_emit_make_nothing_of_no_items_and_add_a_correlation_id() -> None:
    empty = replace(SENT, events=(("notices", 3), ("orders", 2), ("orders", 0)))
    at_audit_too = replace(AT_AUDIT, events=(NOTICE, ORDER, CommittedEvent("orders", "", ())))
    made = replace(AT_LEDGER, events=(replace(ORDER, headers={"correlation_id": "A"}),))
    history = replace(
        RIGHT,
        sent={"e-1": empty},
        received={"A": Received(1, empty.events)},
        commits={"audit": [at_audit_too], "ledger": [made]},
        chained=frozenset({"ledger"}),
    )
    assert check(history) == Verdict(5, 5)
    assert kinds(check(replace(history, commits={**history.commits, "ledger": [AT_LEDGER]}))) == ["torn"]
    assert kinds(check(replace(history, commits={**history.commits, "ledger": []}))) == ["lost"]


# -- lost --------------------------------------------------------------------------------------------------------------


def test_lost_is_what_one_role_never_committed() -> None:
    verdict = check(replace(at_audit(), rows={("audit", "A"): "parked after 5 attempts"}))
    assert kinds(verdict) == ["lost"]
    assert verdict.violations[0].what == "envelope A at position 1 never reached audit: parked after 5 attempts"
    assert verdict.delivered == 0


def test_lost_is_what_was_acknowledged_and_is_not_in_the_journal() -> None:
    verdict = check(replace(RIGHT, received={}, commits={"audit": [], "ledger": []}))
    assert kinds(verdict) == ["lost"]
    assert verdict.acknowledged == 5


def test_lost_is_what_an_outbox_has_taken_and_nobody_got() -> None:
    queued = replace(SENT, envelope_id=None, position=None)
    assert kinds(check(replace(RIGHT, sent={"e-1": queued}))) == []
    assert kinds(check(replace(RIGHT, sent={"e-1": queued, "e-2": replace(queued, ref="e-2")}))) == ["lost"]


def test_lost_is_what_is_not_where_its_receipt_says() -> None:
    assert kinds(check(replace(RIGHT, received={"A": Received(2, SENT.events)}))) == ["lost"]


def test_a_role_is_not_owed_what_its_types_do_not_lead_to() -> None:
    notice = replace(SENT, events=(("notices", 3),))
    history = at_audit_events(NOTICE)
    history = replace(history, sent={"e-1": notice}, received={"A": Received(1, notice.events)})
    assert check(replace(history, commits={**history.commits, "ledger": []})) == Verdict(3, 3)


def test_a_loss_excuses_what_was_acknowledged_before_the_promotion_and_nothing_later() -> None:
    fault = Struck("failover_async", "database", 10, 14, lost=(11, 12))
    for at, found in [(10.9, ["lost"]), (11.5, []), (12.1, ["lost"])]:
        sent = replace(SENT, sealed_at=at)
        lost = replace(RIGHT, sent={"e-1": sent}, received={}, commits={"audit": [], "ledger": []}, faults=[fault])
        verdict = check(lost)
        assert kinds(verdict) == found
        assert verdict.gone_with_database == (0 if found else sent.items)


def test_an_emitter_may_be_refused_until_it_gives_up_what_the_database_lost() -> None:
    """It insists for a minute from its first call behind the loss, and gives up behind the last call of that minute."""
    history = replace(RIGHT, faults=[Struck("failover_async", "database", 10, 14, lost=(11, 12))])
    for at, is_explained in [(10.9, False), (11.5, True), (72.1, True), (100.0, False)]:
        assert refusal_is_explained(history, at) is is_explained


def test_a_commit_of_what_the_database_lost_is_not_invented_while_it_fails_over() -> None:
    for at, found in [(11.5, set()), (20.0, {"invented"})]:
        fault = Struck("failover_async", "database", 10, 14, lost=(11, 12))
        commits = {"audit": [replace(AT_AUDIT, at=at)], "ledger": []}
        history = replace(
            RIGHT, sent={"e-1": replace(SENT, sealed_at=11.5)}, received={}, commits=commits, faults=[fault]
        )
        assert set(kinds(check(history))) == found


def test_a_database_that_is_slow_behind_a_loss_has_the_broker_notice_it_late() -> None:
    loss = Struck("failover_async", "database", 10, 14, lost=(11, 12))
    delays = [Struck("delay-database", "database", 14.5, 17), Struck("delay-database", "database", 17.5, 19)]
    later = Struck("delay-database", "database", 24, 30)
    for at, found in [(13.0, set()), (19.5, set()), (21.0, {"invented"}), (27.0, {"invented"})]:
        commits = {"audit": [replace(AT_AUDIT, at=at)], "ledger": []}
        sent = {"e-1": replace(SENT, sealed_at=11.5)}
        faults = [later, *delays, loss]
        history = replace(RIGHT, sent=sent, received={}, commits=commits, faults=faults)
        assert set(kinds(check(history))) == found


# -- invented ----------------------------------------------------------------------------------------------------------


def test_invented_is_what_nobody_sent() -> None:
    assert kinds(check(at_audit(AT_AUDIT, Commit("B", 1, 2, (replace(ORDER, ref="e-9/0"),))))) == ["invented"]


def test_invented_is_an_item_that_is_not_as_it_was_sent() -> None:
    assert kinds(check(at_audit_events(NOTICE, replace(ORDER, strange=("b'x'",))))) == ["invented"]


def test_invented_is_what_its_emitter_never_asked_to_seal() -> None:
    open_still = replace(SENT, sealing=False, sealed=False, envelope_id=None, position=None)
    assert set(kinds(check(replace(RIGHT, sent={"e-1": open_still})))) == {"invented"}


def test_invented_is_what_the_journal_has_not_received() -> None:
    unsealed = replace(SENT, sealed=False)
    assert set(kinds(check(replace(RIGHT, sent={"e-1": unsealed}, received={})))) == {"invented"}


def test_invented_is_what_comes_under_another_id() -> None:
    history = at_audit(AT_AUDIT, replace(AT_AUDIT, envelope_id="B"))
    history = replace(history, received={**RIGHT.received, "B": Received(2, ())})
    assert kinds(check(history)) == ["invented", "duplicated"]


# -- torn --------------------------------------------------------------------------------------------------------------


def test_torn_is_an_envelope_without_one_of_its_events() -> None:
    assert kinds(check(at_audit_events(ORDER))) == ["torn"]


def test_torn_is_an_event_without_one_of_its_items() -> None:
    assert kinds(check(at_audit_events(replace(NOTICE, runs=((0, 2),)), ORDER))) == ["torn"]
    assert kinds(check(at_audit_events(replace(NOTICE, runs=((0, 1), (2, 1))), ORDER))) == ["torn"]


def test_torn_is_an_event_with_an_item_twice() -> None:
    assert kinds(check(at_audit_events(replace(NOTICE, runs=((0, 3), (2, 1))), ORDER))) == ["torn"]


def test_torn_is_an_event_that_came_twice() -> None:
    assert kinds(check(at_audit_events(NOTICE, NOTICE, ORDER))) == ["torn"]


def test_torn_is_an_event_that_lost_a_header_or_got_one_that_nobody_sent() -> None:
    headed = replace(RIGHT, sent={"e-1": replace(SENT, headed=True)})
    events = [replace(event, headers={"correlation_id": "e-1", "event": event.ref}) for event in (NOTICE, ORDER)]
    right = {"audit": [replace(AT_AUDIT, events=tuple(events))], "ledger": [replace(AT_LEDGER, events=(events[1],))]}
    assert kinds(check(replace(headed, commits=right))) == []
    assert kinds(check(headed)) == ["torn", "torn"]
    assert kinds(check(replace(RIGHT, commits=right))) == ["torn", "torn"]


def test_an_event_without_items_counts_too() -> None:
    sent = replace(SENT, events=(("notices", 0), ("orders", 2)))
    nothing = CommittedEvent("notices", "", ())
    history = replace(RIGHT, sent={"e-1": sent}, received={"A": Received(1, sent.events)})
    without = replace(history, commits={**RIGHT.commits, "audit": [replace(AT_AUDIT, events=(ORDER,))]})
    complete = replace(history, commits={**RIGHT.commits, "audit": [replace(AT_AUDIT, events=(nothing, ORDER))]})
    assert (kinds(check(without)), kinds(check(complete))) == (["torn"], [])


def test_what_an_event_without_items_belongs_to_is_told_by_another_role() -> None:
    queued = replace(SENT, events=(("notices", 3), ("orders", 0)), envelope_id=None, position=None)
    nothing = CommittedEvent("orders", "", ())
    history = replace(RIGHT, sent={"e-1": queued}, received={"A": Received(1, queued.events)})
    commits = {"audit": [replace(AT_AUDIT, events=(NOTICE, nothing))], "ledger": [Commit("A", 1, 2, (nothing,))]}
    assert kinds(check(replace(history, commits=commits))) == []


# -- reordered ---------------------------------------------------------------------------------------------------------


def test_reordered_are_items_not_in_the_order_of_their_indices() -> None:
    assert kinds(check(at_audit_events(replace(NOTICE, runs=((1, 2), (0, 1))), ORDER))) == ["reordered"]


def test_reordered_are_events_not_in_the_order_of_their_envelope() -> None:
    assert kinds(check(at_audit_events(ORDER, NOTICE))) == ["reordered"]


def two_in_order(first_key: str, second_key: str) -> History:
    """A role got position 2 before position 1."""
    events = (("notices", 1),)
    sent = {
        "e-1": Sent("e-1", events, first_key, sealing=True, sealed=True, envelope_id="A", position=1),
        "e-2": Sent("e-2", events, second_key, sealing=True, sealed=True, envelope_id="B", position=2),
    }
    later = Commit("B", 10, 11, (CommittedEvent("notices", "e-2/0", ((0, 1),)),))
    earlier = Commit("A", 11, 12, (CommittedEvent("notices", "e-1/0", ((0, 1),)),))
    received = {"A": Received(1, events), "B": Received(2, events)}
    return History(ROUTES, frozenset({"audit"}), sent, received, {"audit": [later, earlier]})


def test_reordered_are_envelopes_of_a_key_at_a_role_that_wants_order() -> None:
    assert kinds(check(two_in_order("k", "k"))) == ["reordered"]
    assert kinds(check(two_in_order("k", "other"))) == []
    assert kinds(check(replace(two_in_order("k", "k"), ordered=frozenset()))) == []


def test_what_comes_again_after_a_crash_is_not_reordered() -> None:
    history = two_in_order("k", "k")
    later, earlier = history.commits["audit"]
    again = [earlier, later, replace(earlier, begun=20, at=21), replace(later, begun=22, at=23)]
    crash = Struck("broker-kill", "broker", 11, 19)
    assert kinds(check(replace(history, commits={"audit": again}, faults=[crash]))) == []


# -- duplicated --------------------------------------------------------------------------------------------------------


def twice(*faults: Struck) -> Verdict:
    """The audit committed an envelope at 11 s, which had begun at 10 s, and again at 30 s."""
    return check(replace(at_audit(AT_AUDIT, replace(AT_AUDIT, begun=29, at=30)), faults=faults))


def test_duplicated_is_what_no_fault_explains() -> None:
    verdict = twice()
    assert kinds(verdict) == ["duplicated"]
    assert (verdict.duplicated, verdict.duplicates_allowed) == (1, 0)


def test_what_a_fault_explains_is_allowed() -> None:
    for target in ("broker", "database", "audit"):
        verdict = twice(Struck("kill", target, 10.5, 12))
        assert (kinds(verdict), verdict.duplicated, verdict.duplicates_allowed) == ([], 1, 1)
    assert kinds(twice(Struck("kill", "broker", 9, 10))) == []
    assert kinds(twice(Struck("kill", "broker", 11 + SETTLE_SECONDS, 29))) == []


def test_a_fault_explains_nothing_at_another_time_or_to_another_role() -> None:
    assert kinds(twice(Struck("kill", "ledger", 10.5, 12))) == ["duplicated"]
    assert kinds(twice(Struck("kill", "broker", 8, 9.9))) == ["duplicated"]
    assert kinds(twice(Struck("kill", "broker", 11.1 + SETTLE_SECONDS, 29))) == ["duplicated"]


# -- delivered by two brokers ------------------------------------------------------------------------------------------

TWO_BROKERS = [
    Struck("two_brokers", "broker", 10.5, 40),
    Struck(TAKEOVER, TAKEOVER, 12, 17),
    Struck(TAKEOVER, TAKEOVER, 20, 25),
]
"""A broker is frozen, the second one takes over at 12 s, and a third one at 20 s."""


def by_brokers(first: int | None, second: int | None, *faults: Struck, begun: float = 29) -> Verdict:
    """The audit committed an envelope of one broker at 11 s, and again of another one."""
    again = replace(AT_AUDIT, begun=begun, at=begun + 1, reign=second)
    return check(replace(at_audit(replace(AT_AUDIT, reign=first), again), faults=[*TWO_BROKERS, *faults]))


def test_a_successor_may_deliver_what_the_broker_before_could_not_note() -> None:
    for first, second in [(0, 1), (1, 2), (0, 2)]:
        verdict = by_brokers(first, second)
        assert (kinds(verdict), verdict.duplicates_allowed) == ([], 1)


def test_a_take_over_explains_no_repeat_by_one_broker_but_by_the_frozen_one() -> None:
    assert kinds(by_brokers(0, 0)) == []
    for reign in (1, 2):
        assert kinds(by_brokers(reign, reign)) == ["duplicated"]
        assert kinds(by_brokers(reign, reign, Struck("kill", "audit", 10.5, 12))) == []


def test_a_superseded_broker_may_deliver_until_it_has_noticed_and_not_behind_that() -> None:
    for first, second, begun, found in [
        (1, 0, 16.9, []),
        (1, 0, 17.1, ["duplicated"]),
        (2, 1, 24.9, []),
        (2, 1, 25.1, ["duplicated"]),
        (2, 0, 17.1, ["duplicated"]),
    ]:
        assert kinds(by_brokers(first, second, begun=begun)) == found
    (violation,) = by_brokers(1, 0).violations
    assert violation.what == "audit committed envelope A again, 19.0 s later, and it was delivered by two brokers"


def test_no_other_fault_of_the_broker_excuses_one_that_was_superseded() -> None:
    assert kinds(by_brokers(1, 0, Struck("failover_sync", "database", 10.5, 40))) == ["duplicated"]


def test_a_program_may_commit_late_what_it_had_received_before_it_was_stopped() -> None:
    assert kinds(by_brokers(1, 0, Struck("consumer-stop", "audit", 13, 28))) == []
    assert kinds(by_brokers(1, 0, Struck("consumer-stop", "audit", 9, 11.9))) == ["duplicated"]


def test_nothing_is_said_of_a_broker_that_nobody_knows() -> None:
    for first, second in [(None, None), (None, 1), (1, None)]:
        assert kinds(by_brokers(first, second)) == []
