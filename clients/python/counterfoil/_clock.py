"""Elapsed time that goes on while the machine sleeps."""

import time


class Since:
    """An instant. The permit of a step that was asked for at this instant ends a time after it."""

    def __init__(self):
        self._running = _running()
        self._wall = time.time()

    def seconds(self):
        """The seconds since then: the longer of the times on two clocks. A monotonic clock may stand still while the machine sleeps,
        and the wall clock may be set back. A permit that is taken for older than it is costs a request; one that is taken for younger
        costs a second effect."""
        return max(_running() - self._running, time.time() - self._wall)


def _running():
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
