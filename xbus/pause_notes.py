"""Tells a program's log once that it is paused, and once that it goes on."""

import logging


class PauseNotes:
    """Notes whether a program is paused.

    Args:
        logger: gets a line for each pause, and one for its end.
        kind: what the program is, for the action of the lines: ``reader_paused``, ``reader_resumed``.
    """

    def __init__(self, logger: logging.Logger, kind: str) -> None:
        self._logger = logger
        self._kind = kind
        self._pause: str | None = None

    def told(self, pause: str | None) -> None:
        """Take what the broker says: a sentence about the pause, None while there is no pause.

        An older broker says nothing about pauses.
        """
        if pause == self._pause:
            return
        before, self._pause = self._pause, pause
        if pause is not None:
            self._logger.warning("the broker hands nothing out: %s", pause, extra={"action": f"{self._kind}_paused"})
        elif before is not None:
            self._logger.info("the pause is over", extra={"action": f"{self._kind}_resumed"})
