"""Watches the file descriptors: each connection takes one, and without a free one nobody can connect any more."""

import asyncio
import errno
import os
import resource
from typing import NoReturn

from xbus.periodic import every
from xbus.supervision.health import Health

CODE = "descriptors_short"

NEXT_STEP = "see who keeps so many connections open, and raise the limit of open files (ulimit -n, LimitNOFILE=)"

LOOK_SECONDS = 5.0

SHORT_SHARE = 0.9
"""The part of the limit from which on health tells of it."""

OWN = "/proc/self/fd"
"""The folder with an entry for each open descriptor: proc(5)."""


class Descriptors:
    """Tells health when few are left.

    Args:
        health: shows the problem.
    """

    def __init__(self, health: Health) -> None:
        self._health = health

    async def watch(self) -> NoReturn:
        """Count them for ever."""
        await every(LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Count them once."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            used = len(await asyncio.to_thread(os.listdir, OWN))
        except FileNotFoundError:
            return  # a system without that folder
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            used = limit
        if used > limit * SHORT_SHARE:
            cause = f"{used:,} of {limit:,} file descriptors are in use; without a free one nobody can connect"
            self._health.trouble(CODE, cause, NEXT_STEP)
        else:
            self._health.over(CODE)
