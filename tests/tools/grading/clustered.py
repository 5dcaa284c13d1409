"""Grade the same batch on this machine and on a Dask cluster, one worker of which is killed."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mlhood.errors import GradingError
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE
from tests.tools.grading.audit import MAX_LISTED, Audit, audit, differences
from tests.tools.grading.calls import Call, Fault, Log, per_minute, run_grade, verdict
from tests.tools.grading.variants import Variant
from tests.tools.grading.whole_class import MIDDLE, write_class

if TYPE_CHECKING:
    from distributed import LocalCluster

LOCAL, CLUSTER = "this machine", "Dask cluster"


@dataclass(frozen=True)
class Setting:
    """How to grade, with as many jobs here as workers there; the seed determines which one is killed, and when."""

    project: str = "P1"
    workers: int = 2
    seed: int = 0


@dataclass
class ClusterComparison:
    """The outcome: both calls, audits of their gradebooks, and the differences; None if a call has not finished.

    Args:
        calls: By target: this machine, or the cluster.
        audits: By target.
        killed: Number of graded submissions after which a worker was killed.
        differing: Checks whose results differ.
    """

    submissions: Sequence[Variant]
    setting: Setting
    calls: dict[str, Call] = field(default_factory=dict)
    audits: dict[str, Audit] = field(default_factory=dict)
    killed: int | None = None
    differing: list[str] | None = None

    @property
    def held(self) -> bool:
        """Whether a worker was killed, all marks are the same, and nothing is lost, duplicated or wrong."""
        sound = len(self.audits) == 2 and all(audit.sound for audit in self.audits.values())
        return sound and self.killed is not None and self.differing == []

    def text(self) -> str:
        """Return the outcome as text."""
        if not self.calls:
            return "nothing was measured"
        rows = [_row(target, call, self.audits.get(target)) for target, call in self.calls.items()]
        lines = [pd.DataFrame(rows).to_string(index=False)]
        for target, result in self.audits.items():
            lines += [f"{target}:", *(f"  {line}" for line in result.text().splitlines())]
        when = "none" if self.killed is None else f"one, after {self.killed} submissions"
        lines.append(f"workers of the cluster killed: {when}")
        if self.differing is not None:
            lines.append(f"checks whose marks differ: {len(self.differing) or 'none'}")
            lines += [f"  {difference}" for difference in self.differing[:MAX_LISTED]]
        lines.append(verdict("a worker killed, and the same marks to the point", self.held))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {
            "setting": asdict(self.setting),
            "submissions": len(self.submissions),
            "calls": {target: asdict(call) for target, call in self.calls.items()},
            "audits": {target: asdict(audit) for target, audit in self.audits.items()},
            "killed_after": self.killed,
            "differing": self.differing,
            "held": self.held,
        }


def _row(target: str, call: Call, result: Audit | None) -> dict[str, object]:
    graded = result.complete if result else 0
    return {
        "where": target,
        "seconds": f"{call.seconds:.1f}",
        "graded": graded,
        "per minute": f"{per_minute(graded, call.seconds):.2f}",
        "exit code": call.code,
    }


def compare_with_cluster(comparison: ClusterComparison, folder: Path, log: Log) -> None:
    """Grade a batch on this machine, then on a cluster; `comparison` is filled, also after Ctrl-C.

    The submissions and both gradebooks are left in `folder`, which is empty before.

    Raises:
        GradingError: Dask is not installed, or a call could not start its work.
    """
    setting = comparison.setting
    common = write_class(comparison.submissions, folder, setting.project)
    books = {LOCAL: folder / "local" / GRADEBOOK_FILE, CLUSTER: folder / "cluster" / GRADEBOOK_FILE}
    with _cluster(setting.workers) as cluster:
        try:
            arguments = [*common, "--out", books[LOCAL].parent, "--jobs", setting.workers]
            run_grade(arguments, log, call=comparison.calls.setdefault(LOCAL, Call()))
            arguments = [*common, "--out", books[CLUSTER].parent, "--scheduler", cluster.scheduler_address]
            fault = _kill_worker(cluster, comparison, log)
            run_grade(arguments, log, fault, comparison.calls.setdefault(CLUSTER, Call()))
        finally:
            comparison.audits = {
                target: audit(book, comparison.submissions) for target, book in books.items() if book.is_file()
            }
    comparison.differing = differences(books[LOCAL], books[CLUSTER])


def _kill_worker(cluster: LocalCluster, comparison: ClusterComparison, log: Log) -> Fault:
    """Return SIGKILL for a random worker after a random number of submissions, while it is grading the next one."""
    rng = random.Random(comparison.setting.seed)
    moment = rng.uniform(*MIDDLE) * len(comparison.submissions)
    after = max(int(moment), 1)

    def inject(process: object) -> None:
        nanny: Any = rng.choice(list(cluster.workers.values()))
        os.kill(nanny.pid, signal.SIGKILL)
        comparison.killed = after
        log(f"killed a worker of the cluster after {after} submissions")

    return Fault(after, moment % 1, inject)


@contextmanager
def _cluster(workers: int) -> Iterator[LocalCluster]:
    """Yield a cluster of processes on this machine; a worker that dies is replaced.

    Raises:
        GradingError: Dask is not installed.
    """
    try:
        from distributed import LocalCluster
    except ModuleNotFoundError as error:
        raise GradingError(
            "Dask is not installed, so there is no cluster to grade on",
            expected="dask.distributed",
            got=str(error),
            todo='install it: pip install -e ".[cluster]"',
        ) from None
    options: dict[str, Any] = {
        "processes": True,
        "threads_per_worker": 1,
        "resources": {"timed": 1},
        "dashboard_address": "127.0.0.1:0",  # any free port: the dashboard is not used
        "silence_logs": logging.CRITICAL,
    }
    with closing(LocalCluster(n_workers=workers, **options)) as cluster:
        yield cluster
