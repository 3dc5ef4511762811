"""Bots and their runs, as objects."""

from datetime import datetime

from xbus.admin.objects.base import JsonObject, shown
from xbus.admin.objects.roles import of_pause
from xbus.broker.journal.operations.bots import BotRunStatus, BotStatus


def of_bot(bot: BotStatus, now: datetime) -> JsonObject:
    waits = None if bot.slowed_until is None else max(round((bot.slowed_until - now).total_seconds(), 3), 0.0)
    return {
        "bot": bot.name,
        "state": bot.state,
        "call": bot.work,
        "description": bot.description,
        "service": bot.runners,
        "cron": bot.cron or None,
        "timezone": bot.timezone,
        "missed": bot.missed,
        "reads": [*bot.reads],
        "emits": [*bot.emits],
        "max_instances": bot.instances,
        "max_seconds": bot.max_seconds,
        "max_attempts": bot.attempts,
        "next_at": bot.next_slot,
        "due": bot.due,
        "running": bot.running,
        "failed_attempts": bot.failures,
        "slowed_until_at": bot.slowed_until,
        "slowed_seconds": waits,
        "pause": None if bot.pause is None else of_pause(bot.pause),
        "last_run": None if bot.last is None else of_run(bot.last),
    }


def of_run(run: BotRunStatus) -> JsonObject:
    return shown(run, "log", id="run_id", slot="slot_at")
