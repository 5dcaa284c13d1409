"""Honest but unusual notebooks: each is graded in the sandbox and gets full marks."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.execution.grade_notebook import RunSettings, grade, grade_file
from mlhood.grading.sandbox.kernel import SandboxPool
from tests.attacks.attacked import SMALL
from tests.grading import synthetic_course

FULL = [40, 20, 20]
DOUBLE = "def double(x): return 2 * x"
TASK = synthetic_course.SYNTHETIC.tasks[0]


def earned(marks) -> list[float]:
    return [task.earned for task in marks.tasks]


def notes(marks) -> str:
    return " ".join(note for task in marks.tasks for note in task.notes)


def book_with(*cells: str, **solutions: str):
    """The right notebook with these cells before its first task, and these solutions (`T1` for T9.1)."""
    book = synthetic_course.notebook(synthetic_course.SOLUTIONS | {f"T9.{n[1:]}": s for n, s in solutions.items()})
    book.cells[2:2] = map(new_code_cell, cells)
    return book


# each changes its process permanently, so each runs in a process of its own
SEPARATE = {
    "logs at every level": (
        "import logging\nlogging.basicConfig(level=1, force=True)\nlogging.getLogger().debug('x')",
        "import logging\ndef double(x):\n    logging.debug(x)\n    return 2 * x",
    ),
    "a low recursion limit": ("import sys\nsys.setrecursionlimit(150)", DOUBLE),
    "standard streams replaced": ("import io, sys\nsys.stdout = sys.stderr = io.StringIO()", DOUBLE),
    "standard output closed": ("import sys\nsys.stdout.close()", DOUBLE),
    "built-in names replaced": (
        "list = sum = input = print = len = dict = str = type = globals = json = isinstance = 3",
        DOUBLE,
    ),
    "names of IPython and of the course overwritten": (
        "In = Out = exit = quit = get_ipython = _ = __ = mlhood = _server = None",
        "import numpy\nnp = numpy\n" + DOUBLE,
    ),
    "everything deleted": ("x = 1\nimport os\ndel os\n%reset -f", DOUBLE),
    "a task that never ends": (
        "import asyncio\nwaiting = asyncio.create_task(asyncio.sleep(9999))",
        "import asyncio\nawait asyncio.sleep(0.01)\n" + DOUBLE,
    ),
    "no rights for others": ("import os\nos.umask(0o077)", DOUBLE),
    "an alarm": ("import signal\nsignal.signal(signal.SIGALRM, print)\nsignal.setitimer(0, 0.05, 0.05)", DOUBLE),
    "exit() after the work": ("exit()", DOUBLE + "\nexit()"),
    "imported from a file of one's own": (
        f"with open('mine.py', 'w') as f: f.write({DOUBLE!r})",
        "from mine import double",
    ),
    "a built-in function replaced for all": ("import builtins\nbuiltins.print = lambda *a, **k: None", DOUBLE),
    "paths and environment emptied": ("import os, sys\nsys.path.clear()\nos.environ.clear()", DOUBLE),
    "a magic of one's own": (
        "from IPython.core.magic import register_cell_magic\n@register_cell_magic\ndef twice(line, cell):\n"
        "    for _ in range(2): get_ipython().run_cell(cell)",
        "%%twice\n" + DOUBLE,
    ),
    "an open debugger": ("import pdb\npdb.set_trace()", DOUBLE),
    "errors shown in another way": (
        "get_ipython().set_custom_exc((Exception,), lambda *a, **k: print('oops'))",
        DOUBLE,
    ),
    "a thread and a child that never end": (
        "import subprocess, threading, time\nthreading.Thread(target=time.sleep, args=(9999,)).start()\n"
        "subprocess.Popen(['sleep', '9999'])",
        DOUBLE,
    ),
}


@pytest.mark.parametrize(("cell", "double"), SEPARATE.values(), ids=SEPARATE)
def test_a_changed_process_costs_nothing(course, pool, tmp_path, cell, double):
    marks = grade(book_with(cell, T1=double), course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert earned(marks) == FULL


# independent of each other, so they share a notebook
TOGETHER = (
    "# nothing but a comment",
    "",
    "%%time\nx = 1",
    "%timeit -n 1 -r 1 1 + 1",
    "%%capture printed\nprint('x')",
    "%who\n%history\n?print",
    "!ls -la /\n!pip list",
    "%pip install no-such-package\n!pip install no-such-package",
    "%%bash\nexit 3",
    "1 / 0",
    "def (",
    "raise KeyboardInterrupt",
    "raise SystemExit(3)",
    "import no_such_module",
    "name = input('who? ')",
    "import getpass\ngetpass.getpass()",
    "import urllib.request\nurllib.request.urlopen('https://example.org/data.csv', timeout=5)",
    "from IPython.display import HTML, SVG, Javascript, clear_output\n"
    "display(HTML('<b>x</b>'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), Javascript('1'))\nclear_output()",
    "import ipywidgets\nbar = ipywidgets.IntProgress(max=3)\ndisplay(bar)\nfor bar.value in range(3): pass\n"
    "out = ipywidgets.Output()\ndisplay(out)\nwith out: print('inside')",
    "from __future__ import annotations\nfrom typing import *\nimport this",
    "α = привет = 1\r\nif α:\r\n\tβ = 2\r\n",
    "import sys, warnings\nfor n in range(20000): print('UserWarning', n, file=sys.stderr)\nwarnings.warn('odd')",
    "print('x' * (800 << 10))",
    "for n in range(3000): sys.stderr.write(f'\\r{n / 30:3.0f}%|###   |')",
    "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool: pool.map(abs, [1])",
    "sys.setrecursionlimit(10**6)\nsys.set_int_max_str_digits(0)",
    "import numpy as np\nnp.seterr(all='raise')\nnp.random.seed(0)",
    "np.set_printoptions(precision=1, threshold=1)\n%precision 1",
    "warnings.filterwarnings('error')",
    "%load_ext autoreload\n%autoreload 2\n%config InlineBackend.figure_format = 'retina'\n%xmode Minimal\n%pdb on",
)


def test_added_cells_cost_nothing(course, pool, tmp_path):
    book = book_with(*TOGETHER)
    book.cells[5:5] = [new_markdown_cell("# mine\n![x](attachment:a.png)"), new_raw_cell("raw \\LaTeX")]
    marks = grade(book, course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert earned(marks) == FULL
    assert "EOFError" in notes(marks)  # of `input`, at once


FORMS = {
    "a lambda": "double = lambda x: x + x",
    "a partial function": "import functools, operator\ndouble = functools.partial(operator.mul, 2)",
    "an object that is called": "class Double:\n    def __call__(self, x): return 2 * x\ndouble = Double()",
    "a static method": "class Own:\n    @staticmethod\n    def double(x): return 2 * x\ndouble = Own.double",
    "a decorated function that prints": (
        "import functools\ndef traced(f):\n    @functools.wraps(f)\n    def around(*a, **k):\n"
        "        print('called with', a)\n        return f(*a, **k)\n    return around\n@traced\n" + DOUBLE
    ),
    "types and helpers": (
        "def _helper(n): return n + n\ndef double(zahl: 'int | np.ndarray', /) -> 'Any': return _helper(zahl)"
    ),
    "compiled": "import numba\n@numba.njit\n" + DOUBLE,
    "vectorised": "double = np.vectorize(lambda x: 2 * x)",
    "Windows line ends and tabs": "def double(x):\r\n\treturn 2 * x\r\n",
    "timed": "%%time\n" + DOUBLE,
    "captured": "%%capture\n" + DOUBLE,
    "a list": "def double(x): return (2 * np.asarray(x)).tolist()",
    "a scalar of numpy": "def double(x): return 2 * (np.int64(x) if isinstance(x, int) else x)",
    "an array of no dimensions": "def double(x): return np.array(2 * x)",
    "single precision": "def double(x): return 2 * x if isinstance(x, int) else (2 * x).astype(np.float32)",
    "more than double precision": "def double(x): return 2 * x if isinstance(x, int) else np.longdouble(2) * x",
    "big-endian": "def double(x): return np.asarray(2.0 * x).astype('>f8')",
    "not contiguous": "def double(x): return 2 * x if isinstance(x, int) else np.repeat(2 * x, 2, axis=0)[::2]",
    "Fortran's order": "def double(x): return 2 * x if isinstance(x, int) else np.asfortranarray(2 * x)",
    "read-only": "def double(x):\n    y = np.array(2 * x)\n    y.setflags(write=False)\n    return y",
    "a matrix": "def double(x): return 2 * x if isinstance(x, int) else 2 * np.matrix(x)",
    "a masked array that masks nothing": "def double(x): return 2 * x if isinstance(x, int) else 2 * np.ma.array(x)",
}


@pytest.fixture(scope="module")
def honest(bubblewrap, tmp_path_factory):
    """A sandbox for functions without side effects."""
    from tests.attacks.attacked import Attacked

    with (
        SandboxPool(SMALL, imports=(), prewarm=False) as pool,
        pool.kernel(tmp_path_factory.mktemp("kept")) as kernel,
    ):
        attacked = Attacked(kernel)
        attacked.run("import numpy as np")
        yield attacked


@pytest.mark.parametrize("source", FORMS.values(), ids=FORMS)
def test_the_form_of_a_right_function_does_not_matter(honest, source):
    assert honest.run(source).error == ""
    assert grade_task(TASK, honest.session, 4711).earned == 40


WINDOWS = (
    "import matplotlib\nmatplotlib.use('TkAgg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "plt.switch_backend('QtAgg')\nplt.ion()\nplt.figure()\nplt.pause(0.01)\nplt.show(block=True)",
    *(f"%matplotlib {gui}\nplt.plot([1, 2])\nplt.show()" for gui in ("qt", "tk", "widget", "notebook", "inline")),
    "%gui tk\n%gui qt",
)


def test_code_that_opens_windows_draws_in_the_notebook(course, tmp_path):
    book = book_with(*WINDOWS, T1=f"%matplotlib tk\nimport matplotlib\nmatplotlib.use('QtAgg')\n{DOUBLE}")
    with SandboxPool(imports=("matplotlib.pyplot",), prewarm=False) as pool:
        marks = grade(book, course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert earned(marks) == FULL
    assert "Error" not in notes(marks)
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 6


def test_settings_of_torch_do_not_reach_the_checks(course, tmp_path):
    settings = (
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\n"
        "torch.set_num_threads(1)\ntorch.inference_mode().__enter__()"
    )
    double = "def double(x): return 2 * x if isinstance(x, int) else 2 * torch.tensor(x).T.contiguous().T"
    with SandboxPool(imports=(), prewarm=False) as pool:
        marks = grade(
            book_with(settings, T1=double), course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel)
        )
    assert earned(marks) == FULL


# -- how other programs write notebooks

COLAB = {"colab": {"provenance": [], "toc_visible": True}, "accelerator": "GPU", "widgets": {"x": {"state": {"a": 1}}}}
VSCODE = {"language_info": {"name": "python"}, "orig_nbformat": 4, "vscode": {"interpreter": {"hash": "31f2"}}}
KAGGLE = {"kaggle": {"accelerator": "none", "dataSources": []}, "papermill": {"duration": 3.2}}
CONDA = {"kernelspec": {"display_name": "ml (py 3.12)", "language": "python", "name": "conda-env-ml-py"}}
JULIA = {"kernelspec": {"display_name": "Julia", "language": "julia", "name": "julia"}}
WIDGETS = {"widgets": {"application/vnd.jupyter.widget-state+json": {"version_major": 2, "state": {"a": {}}}}}


def as_saved(minor: int, metadata: dict, kernel: bool = False) -> str:
    """The text of a notebook that has been run, as a program saves it."""
    book = synthetic_course.notebook()
    kept = {key: value for key, value in book.metadata.items() if kernel or key != "kernelspec"}
    book.metadata = nbformat.from_dict(kept | metadata)
    book.nbformat_minor = minor
    for i, cell in enumerate(book.cells):
        if minor < 5:
            del cell["id"]
        cell.metadata |= {"id": f"x{i}", "outputId": "y", "ExecuteTime": {"end_time": "now"}, "tags": []}
        if cell.cell_type == "code":
            cell.execution_count = 97 - 3 * i
            cell.outputs = [nbformat.v4.new_output("stream", text="from a run before\n")]
        else:
            cell.attachments = {"a.png": {"image/png": "iVBORw0KGgo="}}
    return json.dumps(book, indent=1)


SAVED = {
    "Colab": as_saved(0, COLAB),
    "VS Code": as_saved(2, VSCODE),
    "Kaggle": as_saved(4, KAGGLE | CONDA),
    "JupyterLab": as_saved(5, WIDGETS, kernel=True),
    "another language": as_saved(5, JULIA),
    "an editor of Windows": "\ufeff" + as_saved(5, CONDA).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", SAVED.values(), ids=SAVED)
def test_notebooks_of_other_programs_are_graded(course, pool, tmp_path, text):
    path = tmp_path / "T9.ipynb"
    path.write_bytes(text.encode())
    assert earned(grade_file(path, RunSettings(4711, kernels=pool.kernel))) == FULL
