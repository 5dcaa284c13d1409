"""Sample the resident memory of a grader and of its descendants many times a second."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import psutil

from mlhood.grading.batch.worker_process import descendants_of

INTERVAL = 0.05  # seconds between two samples of the grader itself
DESCENDANTS_EVERY = 10  # samples; its descendants take longer to measure


@dataclass
class Peaks:
    """Peak resident memory, in bytes.

    Args:
        grader: Of the process that writes the gradebook.
        worker: Of a worker process, which loads the course and checks the answers.
        sandboxed: Of a process that a worker has started.
        together: Of all of them at the same time; shared pages are counted for each.
    """

    grader: int = 0
    worker: int = 0
    sandboxed: int = 0
    together: int = 0

    def update(self, other: Peaks) -> None:
        """Set each peak to the maximum of both."""
        for name, value in vars(other).items():
            setattr(self, name, max(getattr(self, name), value))


class Sampler(threading.Thread):
    """Samples a process until it ends or `stop` is called."""

    def __init__(self, process_id: int) -> None:
        super().__init__(name="mlhood memory", daemon=True)
        self.peaks = Peaks()
        self._id = process_id
        self._stopped = threading.Event()

    def run(self) -> None:
        """Take samples."""
        samples = 0
        with contextlib.suppress(psutil.Error):
            grader = psutil.Process(self._id)
            while not self._stopped.wait(INTERVAL):
                resident = grader.memory_info().rss
                self.peaks.update(Peaks(resident))
                if samples % DESCENDANTS_EVERY == 0:
                    self._sample_descendants(grader, resident)
                samples += 1

    def _sample_descendants(self, grader: psutil.Process, resident: int) -> None:
        workers = grader.children()
        of_workers = _resident(workers)
        of_sandboxed = _resident([process for worker in workers for process in descendants_of(worker.pid)])
        together = resident + sum(of_workers) + sum(of_sandboxed)
        self.peaks.update(Peaks(resident, max(of_workers, default=0), max(of_sandboxed, default=0), together))

    def stop(self) -> Peaks:
        """Stop, and return the peaks."""
        self._stopped.set()
        self.join()
        return self.peaks


def _resident(processes: list[psutil.Process]) -> list[int]:
    sizes = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sizes.append(process.memory_info().rss)
    return sizes
