"""Programs that `jax.export` has written in the student's process: data that the grader itself compiles and runs.

Whether a function can be traced, what operations it has, what its devices communicate, and which arguments it donates
is seen in its program, and what the program computes when the grader runs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.rpc.limited import IsolatedCallError, IsolatedProcess

EXPORTED_RUNS = "mlhood.grading.projects.reference_runs:exported_runs"
SECONDS, MEMORY = 300.0, 3 << 30
ORACLE, ORACLE_SECONDS = "oracle", 500.0
PROCESSES = EXPORTED_RUNS, ORACLE  # the processes that a session keeps
STRANGE = 1e4  # more than any loss, see `probes.trained_by`


def run_programs(submission: Submission, *programs: tuple[object, list[list[Any]]]) -> list[dict[str, Any]]:
    """Run exported programs, each on some lists of arguments (see `reference_runs.exported_runs`).

    All of a submission's run in one process, which takes seconds to load JAX.

    Raises:
        CheckFailed: One of them is none, or does not run.
    """
    for program, _ in programs:
        expect.true(isinstance(program, bytes), "your code cannot be traced to a program", got=program)
    cases = [(program, [list(map(np.asarray, arguments)) for arguments in case]) for program, case in programs]
    try:
        process = submission.session.kept.setdefault(EXPORTED_RUNS, IsolatedProcess(SECONDS, MEMORY))
        return process.call(EXPORTED_RUNS, cases)
    except IsolatedCallError as failure:
        expect.fail("the program that your code is traced to does not run", got=str(failure))


def oracle(submission: Submission) -> IsolatedProcess:
    """Return a process with JAX that runs no program of the submission."""
    return submission.session.kept.setdefault(ORACLE, IsolatedProcess(ORACLE_SECONDS, MEMORY))
