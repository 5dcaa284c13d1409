from __future__ import annotations

import os

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.one_core import one_core
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.rpc.transport import LocalTransport
from tests.waiting import PATIENCE


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no call for it")
def test_threads_and_programs_of_a_submission_share_one_core(tmp_path):
    """Those that run already, and those that a timed call starts; they have all cores again afterwards."""
    source = """
import os, subprocess, sys, threading
waiting, cores = threading.Event(), []
started = threading.Thread(target=lambda: (waiting.wait(), cores.append(sorted(os.sched_getaffinity(0)))))
started.start()
def affinities():
    new = threading.Thread(target=lambda: cores.append(sorted(os.sched_getaffinity(0))))
    new.start(), waiting.set(), new.join(), started.join()
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return [*cores, sorted(os.sched_getaffinity(0)), eval(done.stdout)]
"""
    before = os.sched_getaffinity(0)
    with Kernel(tmp_path) as kernel:
        assert kernel.run(new_code_cell(source), PATIENCE).error == ""
        submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
        with one_core(submission):
            core = sorted(os.sched_getaffinity(0))
            pinned = submission.call("affinities")
        free = submission.call("affinities")
    assert pinned == [core] * 4
    assert len(core) == 1
    assert os.sched_getaffinity(0) == before == set(free[-1])


def test_a_submission_in_this_process_runs_as_it_is(tmp_path):
    submission = Submission(Session(LocalTransport({"f": lambda: 1}), tmp_path, tmp_path))
    with one_core(submission):
        assert submission.call("f") == 1
