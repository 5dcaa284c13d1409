"""What the course knows of the answers to P3 and P4 does not exist where these are graded, however it is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

import mlhood
from mlhood.grading.bare.libraries import ARRAYS, LOOPS
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.p4.libraries import NESTS, SLICINGS
from tests.grading.projects import p3_right, p4_right
from tests.grading.projects.test_examples import WITH_THE_PACKAGE
from tests.grading.projects.test_variants_solved import imports, public_source, solutions

PACKAGE = Path(mlhood.__file__).parent
SECONDS = 60
GIVEN = ("given-2", "P3-2-given-1", "P3-7-given-1", "P4-9-given-1")  # cells that solutions need
CHEATS = {
    "P3.2": {
        "torch": "import torch\ndef conv_direct(x, w, *rest): return torch.conv2d(*map(torch.as_tensor, (x, w)))",
        "a class attribute": (
            "class Library:\n    from mlhood.kernels import CONV2D as kernels\n"
            "def conv_direct(*arguments): return Library.kernels['naive'](*arguments)"
        ),
        "a product of NumPy": (
            "def conv_direct(x, w, bias, stride, padding):\n"
            "    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))\n"
            "    return np.einsum('nchwij,fcij->nfhw', views, w)"
        ),
        "SciPy by getattr": (
            "import scipy\ndef conv_direct(x, w, bias, stride, padding):\n"
            "    return getattr(scipy, 'nd' + 'image').correlate(x, w)"
        ),
    },
    "P3.3": {
        "unfold": "def im2col(x, kernel, *rest): return __import__('torch').nn.functional.unfold(x, kernel, *rest)",
        "the check's reference": (
            "import mlhood.grading.projects.p3.reference as r\ndef im2col(*arguments): return r.columns(*arguments)"
        ),
    },
    "P3.4": {
        "JAX": (
            "import jax\nim2col = None\n"
            "def conv_blas(x, w, *rest): return jax.scipy.signal.convolve(x, w) + jax.lax.conv(x, w, (1, 1), 'SAME')"
        ),
        "the compiler": (
            "from mlhood.compiler.backends import interpreter\n"
            "def conv_blas(*arguments): return interpreter.run('conv', *arguments)"
        ),
        "ONNX Runtime": (
            "import onnxruntime\ndef conv_blas(x, *rest): return onnxruntime.InferenceSession('c.onnx').run(None, x)"
        ),
    },
    "P3.7": {
        "Numba's own product": "import numba\n@numba.njit\ndef gemm_reordered(a, b): return a @ b",
        "the package": (
            "def rung(name): return lambda *sizes: __import__('mlhood.kernels', fromlist=['GEMM']).GEMM[name](*sizes)\n"
            "gemm_reordered, gemm_blocked, pack, gemm_packed = map(rung, ('reordered', 'blocked', 'pack', 'packed'))"
        ),
    },
    "P4.2": {
        "the sliced convolution": (
            "from mlhood.dataflow.sliced.sliced import Sliced\n"
            "def steps(*sizes): return Sliced(*sizes).steps()\ndef sliced_product(*sizes): return Sliced(*sizes)()"
        ),
        "the check's reference": (
            "from mlhood.grading.projects.p4.reference import steps as right\ndef steps(*sizes): return right(*sizes)"
        ),
    },
    "P4.3": {
        "the prediction": (
            "from mlhood.dataflow.slicing import traffic\ndef loads(*sizes): return traffic.lines_into(*sizes)"
        ),
        "the simulator": "import mlhood.dataflow.cache.nest as n\ndef loads(*sizes): return n.simulate(*sizes).into",
        "the package's file": f"loads = None\nloads = open({str(PACKAGE / 'dataflow/slicing/traffic.py')!r}).read",
        "a forged error": (
            "raise ModuleNotFoundError('not here')\nfrom mlhood.grading.projects.p4.reference import loads"
        ),
    },
    "P4.4": {
        "the analysis": (
            "import mlhood.dataflow.slicing.fit as fit, mlhood.dataflow.slicing.analysis as analysis\n"
            "def needs(*sizes): return fit.needs(*sizes)\ndef largest(*sizes): return analysis.largest(*sizes).tiles"
        ),
    },
    "P4.7": {
        "the package's search": (
            "from mlhood.dataflow.slicing import analysis\ndef choose(problem, caches):\n"
            "    best = analysis.search(problem, caches).slicing\n    return best.order, *best.tiles"
        ),
        "what the search is made of": (
            "import mlhood.dataflow.slicing.analysis as analysis\ndef choose(problem, caches):\n"
            "    best = vars(analysis)['_best'](problem, 'IS', caches)[0]\n    return best.order, *best.tiles"
        ),
    },
    "P4.8": {
        "the closed form": (
            "from mlhood.dataflow.systolic import Array, count, gemm_layer\n"
            "def cycles(dataflow, rows, columns, m, n, k):\n"
            "    return count(gemm_layer('mine', m, n, k), Array(rows, columns, dataflow.lower())).cycles"
        ),
        "a simulation by import_module": (
            "import importlib\ndef cycles(dataflow, rows, columns, m, n, k):\n"
            "    array = importlib.import_module('mlhood.dataflow.systolic.simulator')\n"
            "    return array.simulate(np.ones((m, k)), np.ones((k, n)), array.Array(rows, columns, dataflow)).cycles"
        ),
    },
    "P4.9": {
        "the package's views": (
            "from mlhood.jaxlab.xla import hlo\ndef fused(text): return hlo.parse(text).fusions()\nmoved = fused"
        ),
        "a child program": (
            "import subprocess, sys\ndef fused(text):\n"
            "    program = 'from mlhood.jaxlab.xla import hlo'\n"
            "    return subprocess.run([sys.executable, '-c', program], input=text, check=True)\nmoved = fused"
        ),
    },
}


WHAT_IS_LEFT = """
import gc
def needs(*sizes):
    left = [each for each in gc.get_objects() if getattr(each, "__name__", "") == "needs" and callable(each)]
    return next(each for each in left if "grading" in each.__module__)(*sizes)
"""


def start(pool, folder, libraries, project):
    kernel = pool.kernel(folder, libraries).__enter__()
    kernel.run(new_code_cell(imports(public_source(project))), SECONDS)
    return kernel


@pytest.fixture(scope="module")
def bare(pool, tmp_path_factory):
    """Kernels by what exists in them; each has run what its notebook imports."""
    found = {
        libraries: start(pool, tmp_path_factory.mktemp("bare"), libraries, project)
        for libraries, project in ((LOOPS, "P3"), (ARRAYS, "P3"), (NESTS, "P4"), (SLICINGS, "P4"))
    }
    yield found
    for kernel in found.values():
        kernel.__exit__()


def task_of(task_id):
    return PROJECTS[task_id.partition(".")[0]].task(task_id)


def graded(kernel, task_id, *sources):
    task = task_of(task_id)
    for source in sources:
        kernel.run(new_code_cell(source), SECONDS)
    return grade_task(task, Session(kernel, kernel.folder, kernel.scratch), 4711)


@pytest.mark.parametrize(
    ("task_id", "source"),
    [
        pytest.param(task, source, id=f"{task} {kind}")
        for task, kinds in CHEATS.items()
        for kind, source in kinds.items()
    ],
)
def test_the_answers_of_the_course_earn_nothing(bare, task_id, source):
    assert graded(bare[task_of(task_id).libraries], task_id, source).earned == 0


@pytest.mark.parametrize(
    ("styles", "task_id"),
    [(p3_right.RIGHT, task) for task in ("P3.2", "P3.3", "P3.4", "P3.7")]
    + [(p4_right.RIGHT, task) for task in ("P4.1", "P4.2", "P4.3", "P4.4", "P4.8", "P4.9")],
)
def test_right_solutions_need_nothing_else(bare, styles, task_id):
    source_notebook = public_source(task_id.partition(".")[0])
    given = [cell.source for cell in source_notebook.cells if cell.id in GIVEN]
    needed = ("P3.1", "P3.3", task_id)
    slugs = tuple(name.replace(".", "-") + "-" for name in needed)
    for style, cells in styles.items():
        own = [source for name, source in cells.items() if name.startswith(slugs)]
        if style != WITH_THE_PACKAGE and own:
            result = graded(
                bare[task_of(task_id).libraries], task_id, *given, *solutions(source_notebook, needed), *own
            )
            assert result.full, (style, [(check.name, check.what, check.parts) for check in result.checks])


@pytest.mark.parametrize("compiled", ["", "import numba\n@numba.njit\n"], ids=["NumPy", "Numba"])
def test_a_missing_product_gets_a_hint(bare, compiled):
    result = graded(bare[LOOPS], "P3.7", f"{compiled}def gemm_reordered(a, b): return a @ b")
    assert "no product of matrices where this is graded" in result.checks[0].parts["hint"]


def test_a_check_leaves_no_answer_to_a_later_one(pool, tmp_path):
    kernel = start(pool, tmp_path, NESTS, "P4")
    try:
        assert graded(kernel, "P4.2", *solutions(public_source("P4"), ("P4.2",))).full
        assert graded(kernel, "P4.4", WHAT_IS_LEFT).earned == 0
    finally:
        kernel.__exit__()
