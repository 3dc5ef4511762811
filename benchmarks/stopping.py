"""Ends what a measurement has started when it is told to stop."""

import signal
import sys
from types import FrameType


def end_all_on_sigterm() -> None:
    """Have SIGTERM end this program as SIGINT does: its ``with`` blocks end the processes that they have started."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit("stopped")

    signal.signal(signal.SIGTERM, stop)
