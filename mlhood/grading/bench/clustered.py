"""The same batch on this machine and over a Dask cluster, a worker of which is killed on the way."""

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
from mlhood.grading.batch.grade_class import GRADEBOOK
from mlhood.grading.bench.audit import TOLD, Audit, audit, differences
from mlhood.grading.bench.calls import Blow, Call, Say, call, per_minute
from mlhood.grading.bench.variants import Variant
from mlhood.grading.bench.verdict import verdict
from mlhood.grading.bench.whole_class import MIDDLE, laid_out

if TYPE_CHECKING:
    from distributed import LocalCluster

LOCAL, CLUSTER = "this machine", "Dask cluster"


@dataclass(frozen=True)
class Setting:
    """How to grade.

    Args:
        project: Id of the project.
        workers: Of the cluster, and jobs on this machine.
        seed: Of the moment at which a worker is killed, and of which.
    """

    project: str = "P1"
    workers: int = 2
    seed: int = 0


@dataclass
class BothWays:
    """What came of both: the calls, what their gradebooks hold, and where these differ; None if not both are done."""

    handed: Sequence[Variant]
    setting: Setting
    calls: dict[str, Call] = field(default_factory=dict)
    audits: dict[str, Audit] = field(default_factory=dict)
    killed: int | None = None
    differing: list[str] | None = None

    @property
    def held(self) -> bool:
        """Whether a worker was killed, all marks are the same, and nothing is lost, doubled or wrong."""
        sound = len(self.audits) == 2 and all(one.sound for one in self.audits.values())
        return sound and self.killed is not None and self.differing == []

    def text(self) -> str:
        """As people read it."""
        if not self.calls:
            return "nothing was measured"
        rows = [_row(way, done, self.audits.get(way)) for way, done in self.calls.items()]
        lines = [pd.DataFrame(rows).to_string(index=False)]
        for way, found in self.audits.items():
            lines += [f"{way}:", *(f"  {line}" for line in found.text().splitlines())]
        when = "none" if self.killed is None else f"one, after {self.killed} submissions"
        lines.append(f"workers of the cluster killed: {when}")
        if self.differing is not None:
            lines.append(f"checks whose marks differ: {len(self.differing) or 'none'}")
            lines += [f"  {one}" for one in self.differing[:TOLD]]
        lines.append(verdict("a worker killed, and the same marks to the point", self.held))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "setting": asdict(self.setting),
            "submissions": len(self.handed),
            "calls": {way: asdict(one) for way, one in self.calls.items()},
            "audits": {way: asdict(one) for way, one in self.audits.items()},
            "killed_after": self.killed,
            "differing": self.differing,
            "held": self.held,
        }


def _row(way: str, done: Call, found: Audit | None) -> dict[str, object]:
    whole = found.whole if found else 0
    return {
        "where": way,
        "seconds": f"{done.seconds:.1f}",
        "graded": whole,
        "a minute": f"{per_minute(whole, done.seconds):.2f}",
        "exit code": done.code,
    }


def both_ways(ways: BothWays, place: Path, say: Say) -> None:
    """Grade a batch on this machine, then over a cluster; what came of it is in `ways`, also after Ctrl-C.

    Args:
        ways: Takes up what happens.
        place: An empty folder; the submissions and both gradebooks are left in it.
        say: Told how it goes.

    Raises:
        GradingError: Dask is not installed, or a call could not do its work.
    """
    setting = ways.setting
    common = laid_out(ways.handed, place, setting.project)
    books = {way: place / name / GRADEBOOK for way, name in ((LOCAL, "local"), (CLUSTER, "cluster"))}
    with _cluster(setting.workers) as cluster:
        try:
            arguments = [*common, "--out", books[LOCAL].parent, "--jobs", setting.workers]
            call(arguments, say, None, ways.calls.setdefault(LOCAL, Call()))
            arguments = [*common, "--out", books[CLUSTER].parent, "--scheduler", cluster.scheduler_address]
            blow, done = _kill_a_worker(cluster, ways, say), ways.calls.setdefault(CLUSTER, Call())
            call(arguments, say, blow, done)
        finally:
            ways.audits = {way: audit(book, ways.handed) for way, book in books.items() if book.is_file()}
    ways.differing = differences(books[LOCAL], books[CLUSTER])


def _kill_a_worker(cluster: LocalCluster, ways: BothWays, say: Say) -> Blow:
    """SIGKILL for one of the workers, drawn, after a drawn number of submissions: it is at work on the next then."""
    draw = random.Random(ways.setting.seed)  # noqa: S311 - moments, not secrets
    moment = draw.uniform(*MIDDLE) * len(ways.handed)
    after = max(int(moment), 1)

    def deal(process: object) -> None:
        nanny: Any = draw.choice(list(cluster.workers.values()))
        os.kill(nanny.pid, signal.SIGKILL)
        ways.killed = after
        say(f"killed a worker of the cluster after {after} submissions")

    return Blow(after, moment % 1, deal)


@contextmanager
def _cluster(workers: int) -> Iterator[LocalCluster]:
    """A cluster of processes of this machine; one that dies is replaced.

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
        "dashboard_address": "127.0.0.1:0",  # any free port: nobody looks at its page
        "silence_logs": logging.CRITICAL,
    }
    with closing(LocalCluster(n_workers=workers, **options)) as cluster:
        yield cluster
