"""Resident memory of a grader and of what it has started, looked at many times a second."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import psutil

INTERVAL = 0.05  # seconds between two looks at the grader itself
LOOKS = 10  # of those, one looks at what it has started, too: that takes longer


@dataclass
class Peaks:
    """The largest that was seen, in bytes.

    Args:
        grader: Of the process that writes the gradebook.
        worker: Of one of the processes that it has started: they load the course and judge.
        sandboxed: Of one process that such a worker has started.
        together: Of all of them at once; pages that several share are counted for each.
    """

    grader: int = 0
    worker: int = 0
    sandboxed: int = 0
    together: int = 0

    def take_in(self, other: Peaks) -> None:
        """Keep the larger one of each."""
        for name, value in vars(other).items():
            setattr(self, name, max(getattr(self, name), value))


class Sampler(threading.Thread):
    """Looks at a process until it ends or `stop` is called; `peaks` holds what was seen."""

    def __init__(self, process_id: int) -> None:
        super().__init__(name="mlhood memory", daemon=True)
        self.peaks = Peaks()
        self._id = process_id
        self._over = threading.Event()

    def run(self) -> None:
        """Look."""
        looks = 0
        with contextlib.suppress(psutil.Error):
            grader = psutil.Process(self._id)
            while not self._over.wait(INTERVAL):
                own = grader.memory_info().rss
                self.peaks.grader = max(self.peaks.grader, own)
                if looks % LOOKS == 0:
                    self._look_below(grader, own)
                looks += 1

    def _look_below(self, grader: psutil.Process, own: int) -> None:
        workers = grader.children()
        below = [one for worker in workers for one in _children(worker)]
        of_workers, of_others = _resident(workers), _resident(below)
        together = own + sum(of_workers) + sum(of_others)
        self.peaks.take_in(Peaks(own, max(of_workers, default=0), max(of_others, default=0), together))

    def stop(self) -> Peaks:
        """End, and return what was seen."""
        self._over.set()
        self.join()
        return self.peaks


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _resident(processes: list[psutil.Process]) -> list[int]:
    found = []
    for one in processes:
        with contextlib.suppress(psutil.Error):
            found.append(one.memory_info().rss)
    return found
