"""How long grading takes besides a notebook's own cells and checks: a tiny notebook, graded in three ways.

Its cells and checks take no time, so what remains is reading it, the sandbox and its kernels, and cleaning up. A warm
sandbox was started while another one was in use, as in a class; a cold one is started for the submission.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Project, Task, points
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.notebooks.notebook import check_source
from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.measure.ratio import interval

KERNELS = ("warm sandbox", "cold sandbox", "no sandbox")
WARM_UP_SECONDS = 5.0


@points(10)
def doubles(submission: Submission) -> None:
    """`double` doubles numbers."""
    expect.equal(submission.call("double", 21), 42, "`double` is wrong")


TINY = Project("T1", "A tiny project", (Task("T1.1", "Double", (doubles,)),))


def tiny_notebook() -> NotebookNode:
    """Return a solved notebook of one task that takes no time."""
    solution = new_code_cell("def double(x):\n    return 2 * x", id="T1-1-solution")
    check = new_code_cell(check_source("T1.1"), id="T1-1-check")
    for cell, role in ((solution, "solution"), (check, "check")):
        cell.metadata["mlhood"] = {"task": "T1.1", "role": role}
    return new_notebook(cells=[solution, check], metadata={"mlhood": {"project": TINY.id}})


def measure(rounds: int) -> dict[str, list[float]]:
    """Grade the tiny notebook with each kernel once a round, in random order; return the seconds.

    Raises:
        GradingError: This machine has no sandbox, or no kernel starts.
    """
    rng = random.Random(0)  # noqa: S311 - orders, not secrets
    seconds: dict[str, list[float]] = {name: [] for name in KERNELS}
    with SandboxPool() as warm:
        pools = dict(zip(KERNELS, (warm, SandboxPool(prewarm=False), None), strict=True))
        for _ in range(rounds):
            for name in rng.sample(KERNELS, len(KERNELS)):
                warm.start_next()
                time.sleep(WARM_UP_SECONDS)  # a sandbox that is starting would slow the others
                seconds[name].append(_grade(pools[name]))
    return seconds


def _grade(pool: SandboxPool | None) -> float:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        grade(tiny_notebook(), TINY, Path(folder), RunSettings(0, kernels=pool.kernel if pool else None))
    return time.perf_counter() - began


def format_seconds(seconds: dict[str, list[float]]) -> str:
    """Return the median of each kernel, with its 95 % interval."""
    lines = []
    for name, each in seconds.items():
        low, high = interval(each)
        lines.append(f"{name:14}{statistics.median(each):6.2f} s [{low:.2f}, {high:.2f}]")
    return "\n".join(lines)
