"""How much is sent."""

import os
import sys
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    """The amounts of a measurement; those that are given here take all scenarios some minutes.

    Args:
        rounds: how often a rate and its floor are measured.
        single_calls: one-item calls, made one at a time.
        pipelined_calls: one-item calls with many in flight.
        envelope_items: items of each envelope that is sent in batches.
        envelopes: how many of those.
        backlog_envelopes: how many of those wait for an absent consumer.
        restart_items: items that wait while the broker is started, a hundred times the square of a whole number.
        small_single: envelopes of one item that are put one after another.
        small_pipelined: envelopes of one item that are put with many in flight.
        catch_up_envelopes: envelopes of one item that wait for a consumer.
        rare_envelopes: envelopes among which three of a rare type stand.
        file_mb: the size of a file, in millions of bytes.
        output_items: items of the output of a bulk worker.
        http_seconds: for how long events go by HTTP at a pace.
        http_requests: requests of a hundred events.
        http_many: subscriptions, of which each has an event type of its own.
        http_followers: server-sent streams that are opened.
        bot_calls: calls of a bot for events.
        bot_slots: slots of a cron, one a second.
        young_envelopes: envelopes in a young journal; one that has grown has a hundred times as many.
    """

    rounds: int = 3
    single_calls: int = 2_000
    pipelined_calls: int = 20_000
    envelope_items: int = 50_000
    envelopes: int = 16
    backlog_envelopes: int = 100
    restart_items: int = 1_000_000
    small_single: int = 1_000
    small_pipelined: int = 4_000
    catch_up_envelopes: int = 20_000
    rare_envelopes: int = 300_000
    file_mb: int = 1_074
    output_items: int = 200_000
    http_seconds: float = 6.0
    http_requests: int = 500
    http_many: int = 1_000
    http_followers: int = 2_000
    bot_calls: int = 200
    bot_slots: int = 20
    young_envelopes: int = 1_000

    @classmethod
    def of_environment(cls) -> "Sizes":
        """Take the usual amounts, with as many small envelopes and rounds as ENVELOPES and ROUNDS say, if they do."""
        sizes = cls()
        if rounds := _whole_number("ROUNDS"):
            sizes = replace(sizes, rounds=rounds)
        if envelopes := _whole_number("ENVELOPES"):
            sizes = sizes.with_envelopes(envelopes)
        return sizes

    def with_envelopes(self, envelopes: int) -> "Sizes":
        """Give the same with another number of small envelopes, in each scenario that sends such."""
        return replace(
            self,
            small_single=envelopes,
            small_pipelined=envelopes,
            catch_up_envelopes=envelopes,
            rare_envelopes=envelopes,
        )


def _whole_number(name: str) -> int:
    """Read a variable; 0 where it is not set."""
    value = os.environ.get(name, "")
    if not value:
        return 0
    if not value.isdecimal() or int(value) == 0:
        sys.exit(f"{name}={value}: give a whole number above 0")
    return int(value)
