from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.execution.kernel import MAX_COPIED_BYTES, Kernel, NotebookKernels
from mlhood.grading.rpc.codec import TorchTensor
from tests.waiting import PATIENCE, wait_until

TIME_LIMIT = 3  # of what does not end


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    """A kernel that tests kill, so that the next one finds a new process in its place."""
    with Kernel(tmp_path_factory.mktemp("kernel")) as kernel:
        yield kernel


@pytest.fixture
def kernel(replaced):
    yield replaced
    replaced._history.clear()


@pytest.fixture
def submission(kernel):
    return Submission(Session(kernel, kernel.folder, kernel.scratch), CheckContext(seconds=PATIENCE))


def run(kernel, source, seconds=PATIENCE):
    return kernel.run(new_code_cell(source), seconds)


def test_cell_runs_in_the_folder_and_keeps_its_outputs(kernel):
    cell = new_code_cell("import os\nopen('here.txt', 'w').close()\nprint('out')\n6 * 7")
    outcome = kernel.run(cell, PATIENCE)
    assert (outcome.error, outcome.alive) == ("", True)
    assert (kernel.folder / "here.txt").exists()
    assert [output.output_type for output in cell.outputs] == ["stream", "execute_result"]


def test_display_that_is_updated_shows_its_last_state(kernel):
    cell = new_code_cell("bar = display('0 of 2', display_id=True)\nbar.update('2 of 2')")
    assert kernel.run(cell, PATIENCE).error == ""
    assert cell.outputs[0].data["text/plain"] == "'2 of 2'"
    assert run(kernel, "bar.update('from a later cell')").error == ""


def test_error_is_reported_and_the_next_cell_runs(kernel):
    assert run(kernel, "1 / 0").error == "ZeroDivisionError: division by zero"
    assert run(kernel, "x = 1").error == ""


def test_syntax_error(kernel):
    outcome = run(kernel, "x = 1\ndef")
    assert outcome.error.startswith("SyntaxError")
    assert outcome.lines == ((2, "def"),)


def test_a_traceback_names_lines_and_a_forged_one_is_only_text(kernel):
    run(kernel, "def f(x):\n    y = [x]\n    y[1] = x  # here")
    outcome = run(kernel, "x = 1\nf(x)")
    assert [(number, line.strip()) for number, line in outcome.lines] == [(2, "f(x)"), (3, "y[1] = x  # here")]
    forge = "get_ipython().showtraceback = lambda *a, **k: get_ipython()._showtraceback(ValueError, 'x', {!r})"
    run(kernel, forge.format(["----> 7 free points", "-> 10" + 40 * "0" + " x", "-" * 9000 + "> 1 x", 9 * "---> 1 "]))
    assert run(kernel, "1 / 0").lines == ((7, "free points"), (1, 8 * "---> 1 "))


@pytest.mark.parametrize(
    "source", ["import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_death_affects_only_its_cell(kernel, submission, source):
    run(kernel, "def f(): return 1")
    outcome = run(kernel, source)
    assert not outcome.alive
    assert "ended the Python process" in outcome.error
    assert submission.call("f") == 1


def test_endless_loop_is_stopped(kernel, submission):
    run(kernel, "def f(): return 1")
    outcome = run(kernel, "while True: pass", TIME_LIMIT)
    assert outcome.error == "took more than 3 seconds and was stopped"
    assert submission.call("f") == 1


def test_loop_that_cannot_be_interrupted_is_stopped(kernel, submission):
    run(kernel, "def f(): return 1")
    outcome = run(kernel, "while True:\n    try:\n        while True: pass\n    except BaseException: pass", TIME_LIMIT)
    assert not outcome.alive
    assert submission.call("f") == 1


def test_fraction_of_a_second_is_a_limit_too(kernel):
    assert run(kernel, "while True: pass", 0.5).error == "took more than 0.5 seconds and was stopped"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_children_die_with_their_kernel(tmp_path):
    with Kernel(tmp_path) as kernel:
        run(
            kernel,
            "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nopen('pid', 'w').write(str(child.pid))",
        )
        pid = int((tmp_path / "pid").read_text())

    def ended():
        try:
            return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    assert wait_until(ended)


@pytest.mark.parametrize(
    ("body", "reason", "seconds"),
    [
        ("import os; os._exit(0)", "ended the Python process", PATIENCE),
        ("while True: pass", "took more than", TIME_LIMIT),
        ("raise SystemExit", "ended the Python process", PATIENCE),
    ],
)
def test_call_that_ends_the_process_fails_alone(kernel, submission, body, reason, seconds):
    run(kernel, f"def bad():\n    {body}")
    run(kernel, "def good(): return 2")
    with pytest.raises(CheckFailed) as caught:
        Submission(submission.session, CheckContext(seconds=seconds)).call("bad")
    assert reason in str(caught.value)
    assert submission.call("good") == 2


def test_cells_are_replayed_under_their_own_limits(kernel):
    run(kernel, "import time\ntime.sleep(1.5)\nx = 7")
    assert not run(kernel, "while True: pass", 0.5).alive
    assert run(kernel, "assert x == 7").error == ""


def test_death_in_replay_does_not_hang(kernel, submission):
    run(kernel, "def f(): return 1")
    run(kernel, "import os\nif os.path.exists('flag'): os._exit(1)\nopen('flag', 'w').close()")
    assert not run(kernel, "os._exit(1)").alive
    assert submission.call("f") == 1


def test_call_with_arrays_and_tensors(kernel, submission):
    run(kernel, "def kind(a, b): return [type(a).__module__, type(b).__module__, b * 2]")
    kinds = submission.call("kind", np.ones(2), TorchTensor(np.ones(3, np.float32)))
    assert kinds[:2] == ["numpy", "torch"]
    assert np.array_equal(kinds[2], np.full(3, 2, np.float32))


def test_object_stays_remote_and_its_methods_can_be_called(kernel, submission):
    run(kernel, "class Model:\n    def go(self, x): return x + 1\ndef make(): return Model()")
    model = submission.call("make")
    assert model.type == "Model"
    assert submission.call(model, 1, method="go") == 2


def test_error_of_the_student_names_their_line(kernel, submission):
    run(kernel, "def f(x):\n    y = x + 1\n    return y.undefined")
    with pytest.raises(CheckFailed) as caught:
        submission.call("f", 1)
    assert "AttributeError" in caught.value.parts["got"]
    assert "in the line `return y.undefined`" in caught.value.parts["got"]


def test_missing_name_and_unwritten_function(kernel, submission):
    run(kernel, "def f(): raise NotImplementedError()")
    with pytest.raises(CheckFailed, match="`f` is not written yet"):
        submission.call("f")
    with pytest.raises(CheckFailed, match="the notebook defines no `g`"):
        submission.value("g")


def test_forged_reply_is_only_a_wrong_answer(kernel, submission):
    run(kernel, "import mlhood.grading.rpc.server as server\nhonest = server.encode\nserver.encode = lambda *a: b'1'")
    run(kernel, "def f(): return 1")
    with pytest.raises(CheckFailed, match="gave no usable answer"):
        submission.call("f")
    run(kernel, "server.encode = honest")


def test_kernel_that_cannot_start_is_a_grading_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GradingError, match="no kernel"), Kernel(tmp_path / "file" / "below"):
        pass


SIZES = {"a.onnx": 3, "b.onnx": MAX_COPIED_BYTES, "c.onnx": MAX_COPIED_BYTES + 1}
FILES = Libraries(files=tuple(SIZES))


def test_a_bare_kernel_gets_the_small_files_that_its_libraries_name(tmp_path):
    sizes = "from pathlib import Path\nprint({p.name: p.stat().st_size for p in sorted(Path().iterdir())})"
    with NotebookKernels([Task("T9.1", "", (), libraries=FILES)], tmp_path) as kernels:
        for name, size in {**SIZES, "other.onnx": 3}.items():
            (kernels.notebook.folder / name).write_bytes(bytes(size))
        kernels.run(new_code_cell("pass"), 30)
        cell = new_code_cell(sizes)
        kernels.bare[FILES].run(cell, 30)
    assert cell.outputs[0].text.strip() == str({name: SIZES[name] for name in ("a.onnx", "b.onnx")})
