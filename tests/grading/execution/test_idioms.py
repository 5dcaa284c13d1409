"""Ordinary code in cells of one's own, and in a solution, costs no points where a task is graded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.projects import PROJECTS
from tests.grading import synthetic_course
from tests.waiting import PATIENCE

OWN_CELLS = (
    "import mlhood\nmlhood.hint('T9.1')",
    "mlhood.check('T9.1')\nbefore = 1",
    "mlhood.progress()",
    "from mlhood import measure\nfrom mlhood.measure import compare\ncompare({'a': lambda: 1, 'b': lambda: 2})",
    "%pip --version",
    "!pip --version",
    "try:\n    import google.colab\n    !pip --version\nexcept ImportError:\n    pass",
    "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "fig, axes = plt.subplots(1, 2)\naxes[0].plot([1, 2])\nfig.tight_layout()",
    "import pandas as pd\npd.DataFrame({'a': [1]}).head()",
    "import torch\ntorch.manual_seed(0)\ntorch.set_num_threads(1)",
    "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x",
    "import jax, jax.numpy as jnp\n@jax.jit\ndef traced(x): return jnp.sum(x)",
    "import scipy.signal\nscipy.signal.convolve([1, 2], [1])",
    "from sklearn.datasets import load_digits\ndigits = load_digits()",
    "%timeit -n 1 -r 1 sum(range(10))",
    "%%time\ntotal = sum(range(10))",
    "%who",
    "%load_ext autoreload\n%autoreload 2",
    "%debug",
    "import pdb\npdb.set_trace",
    "import logging\nlogging.getLogger().setLevel(logging.DEBUG)",
    "vars(np)['pi']",
    "getattr(np, 'mean')([1, 2])",
    "setattr(np, 'own_mean', 3)",
    "globals()['made'] = 1",
    "locals().keys()",
    "dir(np)[:3]",
    "np.mean.__doc__[:10]",
    "class Point:\n    pass\np = Point()\np.__dict__.update(x=1)",
    "import pickle\npickle.loads(pickle.dumps([1, 2]))",
    "import copy\ncopy.deepcopy({'a': [1]})",
    "import inspect\ninspect.signature(len)",
    "exec('made_by_exec = 1')",
    "eval('1 + 1')",
    "import sys\nsys.getsizeof(1), sys.modules['numpy']",
    "import os\nos.environ.get('HOME'), os.getcwd(), os.listdir()",
    "from pathlib import Path\nPath('own.txt').write_text('x')",
    "import warnings\nwarnings.filterwarnings('ignore')",
    "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()): print(1)",
    "from functools import lru_cache, partial, reduce\n@lru_cache\ndef cached(x): return x\ncached(1)",
    "from dataclasses import dataclass\n@dataclass\nclass Case:\n    x: int = 1",
    "import importlib\nimportlib.reload(importlib.import_module('math'))",
    "__import__('math').sqrt(4)",
    "np.set_printoptions(precision=3)",
    "rng = np.random.default_rng(0)\nrng.normal(size=3)",
    "np.random.seed(0)",
    "import numba\n@numba.njit(cache=True)\ndef fast(x): return 2 * x\nfast(1)",
    "import subprocess\nsubprocess.run(['ls'])",
    "import threading\nthreading.Thread(target=print).start()",
    "import asyncio\nawait asyncio.sleep(0)",
    "import json\nprint(json.dumps({'a': 1}))",
    "import time\nstart = time.perf_counter()",
    "1 / 0",
    "undefined_name",
    "assert False, 'look again'",
    "raise ValueError('stop here')",
    "def broken(:",
    "?np.mean",
    "from IPython.display import Markdown, display\ndisplay(Markdown('*x*'))",
    "%config InlineBackend.figure_format = 'retina'",
    "%%writefile helper.py\ndef twice(x): return x + x",
    "from helper import twice",
    "del rng",
    "input_size: int = 3",
    "print(f'{input_size=}')",
)
SOLUTIONS = {
    "getattr": "def double(x): return getattr(np, 'multiply')(x, 2)",
    "a helper in a file": "from helper import twice\ndouble = twice",
    "vars": "def double(x): return vars(np)['add'](x, x)",
    "exec": "exec('def double(x): return 2 * x')",
    "a figure beside it": "import matplotlib.pyplot as plt\nplt.figure()\ndef double(x):\n    return 2 * x\nplt.show()",
    "an annotation": "import torch\ndef double(x: torch.Tensor | np.ndarray) -> torch.Tensor: return 2 * x",
    "a check for tensors": (
        "import torch\ndef double(x):\n    if isinstance(x, torch.Tensor): x = x.numpy()\n    return 2 * x"
    ),
}


DOUBLE = replace(synthetic_course.SYNTHETIC.tasks[0], libraries=ARRAYS)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with Kernel(tmp_path_factory.mktemp("bare"), ARRAYS) as kernel:
        for source in ("import numpy as np", "%%writefile helper.py\ndef twice(x): return x + x"):
            assert not kernel.run(new_code_cell(source), PATIENCE).error
        yield kernel


@pytest.mark.parametrize("source", SOLUTIONS.values(), ids=SOLUTIONS)
def test_a_solution_in_any_style_gets_its_points(kernel, source):
    kernel.run(new_code_cell(source), PATIENCE)
    result = grade_task(DOUBLE, Session(kernel, kernel.folder, kernel.scratch), 4711)
    assert result.full, result.checks


def test_cells_of_ones_own_cost_no_points(monkeypatch, tmp_path):
    """All of them before the solution, in one notebook."""
    monkeypatch.setenv("IPYTHONDIR", str(synthetic_course.ipython_folder(tmp_path)))
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    project = replace(synthetic_course.SYNTHETIC, tasks=(DOUBLE, *synthetic_course.SYNTHETIC.tasks[1:]))
    book = synthetic_course.notebook()
    book.cells[1:1] = [new_code_cell(source) for source in ("import numpy as np", *OWN_CELLS)]
    marks = grade(book, project, tmp_path / "work", RunSettings(4711))
    assert [task.full for task in marks.tasks] == [True, True, True]
